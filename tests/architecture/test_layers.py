"""The import contracts cover the whole library, and what is pure stays pure. The contracts themselves are run by `make lint`."""

import re
import subprocess
import sys

import pytest

from .source import LIBRARY, PROJECT, imports, name_of, python_files, settings, shown

PURE = ("outlast.native.replay", "outlast.native.history", "outlast.native.transitions", "outlast.native.selection", "outlast.retry")
WORLD = {
    "asyncio",
    "threading",
    "time",
    "random",
    "secrets",
    "uuid",
    "logging",
    "os",
    "socket",
    "subprocess",
    "sqlite3",
    "psycopg",
    "psycopg_pool",
    "temporalio",
}
DRIVERS_AND_FRAMEWORKS = ("sqlite3", "psycopg", "psycopg_pool", "click", "rich", "temporalio", "starlette", "jinja2", "uvicorn", "sqlalchemy", "pydantic")


def drawn():
    """All names in the drawing of the layers."""
    (contract,) = (contract for contract in settings()["tool"]["importlinter"]["contracts"] if contract["id"] == "layers")
    return [name for layer in contract["layers"] for name in re.findall(r"outlast[\w.]*", layer)]


def test_every_module_has_its_place_in_the_drawing():
    """A new file is put into a layer in pyproject.toml, so that no import of it goes unseen."""
    places = drawn()
    homeless = []
    for path in python_files(LIBRARY):
        name = name_of(path)
        is_placed = any(name == place or name.startswith(f"{place}.") for place in places)
        is_folder = path.name == "__init__.py" and any(place.startswith(f"{name}.") for place in places)
        if not (is_placed or is_folder):
            homeless.append(name)
    assert not homeless


def test_every_name_is_drawn_once():
    """A module that stood in two layers could import from both sides."""
    assert len(drawn()) == len(set(drawn()))


def test_pure_modules_do_no_io_and_know_no_time():
    """The heart imports neither a clock, nor randomness, nor a loop, nor a driver, so that its tests are arithmetic."""
    modules = [path for path in python_files(LIBRARY) if name_of(path) in PURE or path.name == "mapping.py"]
    assert modules
    assert not [f"{shown(path, node)} imports {name}" for path in modules for node, name in imports(path) if name.split(".")[0] in WORLD]


def test_nothing_in_the_library_imports_the_testing_kit():
    """What ships to users for their tests is no part of what runs in production."""
    files = [path for path in python_files(LIBRARY) if LIBRARY / "testing" not in path.parents]
    assert not [shown(path, node) for path in files for node, name in imports(path) if name.startswith("outlast.testing")]


@pytest.mark.parametrize("module", ["outlast", "outlast.errors", "outlast.run", "outlast.task"])
def test_importing_outlast_loads_no_driver_and_no_framework(module):
    """A program that only declares tasks does not pay for databases and command lines."""
    if not any(name_of(path) == module for path in python_files(LIBRARY)):
        module = "outlast.limits"
    code = f"import sys, {module}; print(*sorted(set(sys.modules) & set({DRIVERS_AND_FRAMEWORKS!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(PROJECT / "src")}, timeout=60)
    assert done.stdout.split() == []
