"""What a script writes is current: the blocking surface never falls behind the `async` one, nor the drawn states behind the allowed changes."""

import inspect
import subprocess
import sys

import pytest

from outlast.blocking import BlockingEngine, BlockingInspector, BlockingOperator, BlockingRun
from outlast.blocking_context import BlockingContext
from outlast.context import Context
from outlast.engine import TaskEngine
from outlast.inspector import Inspector
from outlast.operator import Operator
from outlast.run import Run

from .source import GENERATED, LIBRARY, PROJECT, python_files, tree

SCRIPT = PROJECT / "scripts" / "generate_blocking.py"
DRAWING = PROJECT / "scripts" / "draw_transitions.py"


@pytest.mark.parametrize("script", [SCRIPT, DRAWING], ids=lambda script: script.stem)
def test_generated_files_are_current(script):
    """`make generate` would change nothing."""
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_make_generates_all_that_scripts_write():
    """Each script that has a check here is run by `make generate`."""
    recipe = (PROJECT / "Makefile").read_text(encoding="utf-8").partition("\ngenerate:")[2].partition("\n\n")[0]
    assert [script for script in (SCRIPT, DRAWING) if f"scripts/{script.name}" not in recipe] == []


def test_a_stale_file_is_found(tmp_path):
    """The check compares what is there with what the originals say, and names the file."""
    code = f"""
import sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
import generate_blocking
from pathlib import Path
stale = Path({str(tmp_path / "stale.py")!r})
stale.write_text("x = 1")
generate_blocking.PROJECT = stale.parent
generate_blocking.FILES = {{stale: lambda: "x=2"}}
sys.exit(generate_blocking.main(["--check"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "stale.py is not what its originals say: run `make generate`\n")
    assert (tmp_path / "stale.py").read_text() == "x = 1"


def drawn(tmp_path, change):
    """Run the check of the drawings with something changed before; return its exit code and what it complains of."""
    code = f"""
import sys
sys.path.insert(0, {str(DRAWING.parent)!r})
import draw_transitions
from pathlib import Path
page = Path({str(tmp_path / "states.md")!r})
page.write_text(draw_transitions.PAGE.read_text())
draw_transitions.PAGE = page
{change}
sys.exit(draw_transitions.main(["--check"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr.strip()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            "page.write_text(page.read_text().replace('third strike', 'second strike'))",
            "states.md is not what the tables of allowed changes say: run `make generate`",
        ),
        (
            "page.write_text(page.read_text().replace('->|', '--|', 1))",
            "states.md is not what the tables of allowed changes say: run `make generate`",
        ),
        (
            "draw_transitions.RUNS_ALLOWED -= {(draw_transitions.R.RUNNING, draw_transitions.R.DEAD)}",
            "RUNS in scripts/draw_transitions.py and the table of allowed changes differ in ['running -> dead']",
        ),
        (
            "draw_transitions.OPERATIONS_ALLOWED = {}; draw_transitions.OPERATIONS = {draw_transitions.Change.ASK: 'asked'}",
            "OPERATIONS in scripts/draw_transitions.py and the table of allowed changes differ in ['ask']",
        ),
        ("page.write_text('')", "states.md needs once, each on a line of its own: ..."),
    ],
    ids=["words", "arrow", "change without words", "words without change", "no markers"],
)
def test_a_stale_drawing_is_found(tmp_path, change, complaint):
    """What was edited by hand, and a table of allowed changes that went on without its words, fail the check and are named."""
    code, complained = drawn(tmp_path, change)
    assert code == 1
    assert complained.startswith(complaint.removesuffix("..."))


def test_generated_files_say_so_and_only_they():
    """Their header names the script that wrote them and tells not to edit them."""
    marked = {path.name for path in python_files(LIBRARY) if GENERATED in (tree(path).body[0].value.value if tree(path).body else "")}
    assert marked == {"blocking.py", "blocking_context.py"}


@pytest.mark.parametrize(
    ("original", "twin"),
    [
        (Context, BlockingContext),
        (Run, BlockingRun),
        (TaskEngine, BlockingEngine),
        (Inspector, BlockingInspector),
        (Operator, BlockingOperator),
    ],
    ids=lambda cls: cls.__name__,
)
def test_a_twin_has_the_public_methods_of_its_original(original, twin):
    """Every one, with the same parameters, and nothing that has to be awaited."""
    names = {name for name in vars(original) if not name.startswith("_")} - {"first"}  # a `def` body is one branch
    assert names
    assert names <= set(dir(twin))
    for name in names - {"enqueue"}:  # whose twin hands on its input as it came
        first, second = getattr(original, name), getattr(twin, name)
        assert not inspect.iscoroutinefunction(second)
        if inspect.isfunction(first):
            assert inspect.signature(first).parameters == inspect.signature(second).parameters, name
