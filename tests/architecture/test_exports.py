"""The public surface: sorted, importable, and nothing by accident. Words that are persisted never change."""

import importlib
import subprocess
import sys
import zipfile

import pytest

import outlast
from outlast.decision import DecisionState
from outlast.ledger.asking import Option
from outlast.ledger.operation import AttemptOutcome, OperationStatus
from outlast.native.history import Outcome, RecordKind
from outlast.run import CancelOutcome, RunStatus

from .source import LIBRARY, PROJECT

PUBLIC = getattr(outlast, "__all__", [])


def test_public_names_are_sorted_and_there_once():
    """`outlast.__all__` reads like an index: constants, classes, functions, each by the alphabet."""
    assert list(PUBLIC) == sorted(set(PUBLIC), key=lambda name: (not name.isupper(), name[0].islower(), name))


def test_every_public_name_is_importable_and_explained():
    """What is promised is there, and each class and function has a docstring."""
    missing = [name for name in PUBLIC if not hasattr(outlast, name)]
    silent = [name for name in PUBLIC if callable(getattr(outlast, name, None)) and not getattr(outlast, name).__doc__]
    assert not missing
    assert not silent


def test_nothing_public_is_left_out():
    """A name without an underscore that `outlast` binds, and that is no module of it, is in `__all__`."""
    bound = {name for name, value in vars(outlast).items() if not name.startswith("_") and type(value).__name__ != "module"}
    assert not bound - set(PUBLIC)


@pytest.mark.parametrize(
    ("enumeration", "words"),
    [
        (RunStatus, {"pending", "running", "waiting", "succeeded", "failed", "canceled", "dead"}),
        (DecisionState, {"open", "answered", "consumed", "superseded", "withdrawn"}),
        (CancelOutcome, {"requested", "canceled", "already_over"}),
        (RecordKind, {"step", "transaction", "effect", "wait", "until", "ask", "signal", "sleep", "timeout"}),
        (Outcome, {"result", "error", "resumed", "given_up"}),
        (OperationStatus, {"planned", "attempting", "unknown", "asked", "done", "failed"}),
        (AttemptOutcome, {"done", "not_done", "unknown"}),
        (Option, {"done", "again", "fail"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_persisted_words_are_frozen(enumeration, words):
    """Rows of earlier releases have these words: none is taken away or changed, and a new one is added here on purpose."""
    assert {member.value for member in enumeration} == words


def test_every_module_is_importable_by_itself():
    """No module needs another to have been imported before it."""
    code = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)"
    heads = sorted(path.stem for path in LIBRARY.glob("*.py") if not path.stem.startswith("__"))
    for head in heads:
        importlib.import_module(f"outlast.{head}")
    done = subprocess.run([sys.executable, "-c", code, *(f"outlast.{head}" for head in reversed(heads))], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_wheel_has_statements_migrations_and_the_typing_mark(tmp_path):
    """What `pip install` puts on a machine has every .sql file and py.typed."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    shipped = set(zipfile.ZipFile(wheel).namelist())
    wanted = [path for path in LIBRARY.rglob("*") if path.suffix == ".sql" or path.name == "py.typed"]
    assert not [str(path) for path in wanted if str(path.relative_to(LIBRARY.parent)) not in shipped]
