"""A wrong address, setting, file, server or schema is refused with the reason, and nothing is made, altered or written."""

import asyncio
import gc
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from outlast import Context, NotSupportedError, OutlastError, SchemaError, UnavailableError, UsageError, connect, task
from outlast.native.engine import NativeEngine


@task
async def nothing(ctx: Context) -> None: ...


@task
async def other(ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("", UsageError, "no database address: write sqlite:///"),
        (None, UsageError, "None is no database address"),
        ("outlast.db", UsageError, "no database address"),
        ("mysql://host/db", UsageError, "mysql: is no engine: write sqlite:///"),
        ("sqlite://", UsageError, "in memory, which ends with the process: name a file"),
        ("sqlite:///", UsageError, "name a file"),
        ("sqlite:///:memory:", UsageError, "in memory"),
        ("sqlite:", UsageError, "name a file"),
        ("sqlite://outlast.db", UsageError, "two slashes or fewer"),
        ("sqlite:outlast.db", UsageError, "two slashes or fewer"),
        ("sqlite:///a.db?mode=ro", UsageError, "options"),
        ("temporal://host", NotSupportedError, "not part of this version; use sqlite: or postgresql:"),
        ("openworkflow+postgresql://host/db", NotSupportedError, "not part of this version"),
    ],
)
def test_a_wrong_address_is_named(url, error, message):
    """With the reason, before anything is opened."""
    with pytest.raises(error, match=message):
        connect(url)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": (nothing, task("nothing")(other.body))}, "nothing version 1 twice"),
        ({"tasks": (nothing.body,)}, "write functions declared with @task"),
        ({"lease": "10ms"}, "lease is .*at least"),
        ({"lease": "long"}, "lease is 'long'"),
        ({"migrate": "yes"}, "migrate is 'yes'"),
        ({"journal": "off"}, "journal is 'off'"),
    ],
)
def test_a_wrong_setting_is_named(options, message):
    """When the engine is made, before anything is opened."""
    with pytest.raises(UsageError, match=message):
        connect("sqlite:///never-made.db", **options)
    assert not Path("never-made.db").exists()


async def use(url: str, **options: Any) -> None:
    async with connect(url, tasks=(nothing,), **options) as engine:
        await engine.enqueue(nothing)


def refused(url: str, error: type[OutlastError], message: str, **options: Any) -> None:
    with pytest.raises(error, match=message):
        asyncio.run(use(url, **options))


def test_a_server_that_is_not_there_is_unavailable():
    """Within the time-out of an enqueue, with the host and without the password."""
    with pytest.raises(UnavailableError) as unavailable:
        asyncio.run(asyncio.wait_for(use("postgresql://ann:secret@127.0.0.1:9/nothing"), 15))
    assert "127.0.0.1" in str(unavailable.value)
    assert "secret" not in str(unavailable.value)


def test_a_missing_folder_is_named(tmp_path):
    """It is not made: a wrong path would be a new, empty database."""
    refused(f"sqlite:///{tmp_path}/none/outlast.db", UsageError, "none is not a folder")
    refused(f"sqlite:///{tmp_path}", UsageError, "is a folder: name a file in it")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_named(tmp_path):
    """And it stays as it is."""
    file = tmp_path / "photo.jpg"
    file.write_bytes(b"\xff\xd8\xff" * 1000)
    refused(f"sqlite:///{file}", UsageError, "photo.jpg is not an SQLite database")
    assert file.read_bytes() == b"\xff\xd8\xff" * 1000


READ_ONLY = """
import asyncio, os, sys
from outlast import Context, OutlastError, connect, task

@task
async def nothing(ctx: Context) -> None: ...

async def use(file):
    async with connect("sqlite:///" + file, tasks=(nothing,)) as engine:
        await engine.enqueue(nothing)

asyncio.run(use(sys.argv[1]))
os.chmod(sys.argv[1], 0o444)
if os.getuid() == 0:
    os.setuid(65534)
try:
    asyncio.run(asyncio.wait_for(use(sys.argv[1]), 20))
except OutlastError as error:
    print(type(error).__name__, error)
"""
"""A program that makes a database, gives up its right to write to it, and says what it is told then."""


def test_a_read_only_database_is_named():
    """A file that this process may only read: the error names it instead of hanging, and nothing was written."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder) / "outlast.db"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run([sys.executable, "-c", READ_ONLY, str(file)], capture_output=True, text=True, timeout=60, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        assert "Error" in done.stdout
        assert "outlast.db" in done.stdout
        assert "read" in done.stdout
        connection = sqlite3.connect(file)
        assert connection.execute("SELECT count(*) FROM outlast_run").fetchone() == (1,)
        connection.close()


@pytest.mark.parametrize(("version", "oldest_code", "message"), [(0, 0, "run `outlast migrate`"), (99, 99, "deploy a newer outlast")])
def test_a_schema_that_does_not_fit_is_named(tmp_path, version, oldest_code, message):
    """Too old and too new alike are refused before anything is written, and nothing is altered unasked."""
    file = tmp_path / "outlast.db"
    asyncio.run(use(f"sqlite:///{file}"))
    connection = sqlite3.connect(file)
    with connection:
        connection.execute("UPDATE outlast_meta SET version = ?, oldest_code = ?", (version, oldest_code))
    refused(f"sqlite:///{file}", SchemaError, message)
    assert connection.execute("SELECT count(*) FROM outlast_run").fetchone() == (1,)
    assert connection.execute("SELECT version FROM outlast_meta").fetchone() == (version,)
    connection.close()


def test_a_missing_schema_is_named(database_url):
    """`migrate=False` makes nothing, and what was opened to see that is closed: a connection left open is a warning, which fails."""
    refused(database_url, SchemaError, "run `outlast migrate`", migrate=False)
    gc.collect()


def test_an_engine_does_not_go_over_a_fork(database_url):
    """A child that was forked after the opening is told to connect again, and the parent's engine goes on."""

    async def scenario() -> None:
        async with connect(database_url, tasks=(nothing,)) as engine:
            await engine.enqueue(nothing)
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os._exit(_told_in_child(engine, writer))
            os.close(writer)
            with os.fdopen(reader) as answers:
                told = await asyncio.to_thread(answers.read)
            await asyncio.to_thread(os.waitpid, child, 0)
            assert told.startswith("UsageError")
            assert "fork" in told
            await engine.enqueue(nothing)
            assert len((await engine.inspector.list_runs()).runs) == 2

    asyncio.run(scenario())


def _told_in_child(engine: NativeEngine, writer: int) -> int:
    """Try a transaction on the parent's engine, and send what became of it."""
    try:
        with engine._backend.database.transaction():
            answer = "it worked"
    except BaseException as error:
        answer = f"{type(error).__name__}: {error}"
    os.write(writer, answer.encode())
    return 0
