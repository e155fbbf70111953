"""What a script writes is current: the blocking surface never falls behind the `async` one that it mirrors."""

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


def test_generated_files_are_current():
    """`make generate` would change nothing."""
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


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
    names = {name for name in vars(original) if not name.startswith("_")}
    assert names
    assert names <= set(dir(twin))
    for name in names - {"enqueue"}:  # whose twin hands on its input as it came
        first, second = getattr(original, name), getattr(twin, name)
        assert not inspect.iscoroutinefunction(second)
        if inspect.isfunction(first):
            assert inspect.signature(first).parameters == inspect.signature(second).parameters, name
