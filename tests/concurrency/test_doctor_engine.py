"""The doctor inside a process that works: it is asked through the engine, and disturbs nobody."""

import subprocess
import sys

from outlast import Context, task
from outlast.finding import Check, Level

from .engine_world import WAIT, engine_at, play

ABOUT_THE_MACHINE = (Check.SETTINGS, Check.FILES, Check.VERSIONS)
"""What a server and a disk for tests may be warned about."""
TRY_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("held")
    else:
        print("free")
"""


def tried_by_another_process(lock):
    """Return whether another process finds the lock held or free."""
    done = subprocess.run([sys.executable, "-c", TRY_LOCK, str(lock)], capture_output=True, text=True, check=True, timeout=WAIT)
    return done.stdout.strip()


@task
async def greet(ctx: Context, name: str) -> str:
    return f"hello, {name}"


@task("greet", version=2)
async def greet_again(ctx: Context, name: str) -> str:
    return f"hello again, {name}"


def test_an_engine_is_examined_while_it_works(database_url):
    """With the tasks that it has; runs go on before, meanwhile and after."""

    async def scenario() -> None:
        async with engine_at(database_url, greet) as heard:
            runs = await heard.engine.enqueue_many(greet, [str(number) for number in range(20)])
            found = await heard.engine.examine()
            assert [await run.result(timeout=WAIT) for run in runs] == [f"hello, {number}" for number in range(20)]
            assert await (await heard.engine.enqueue(greet, "Ada")).result(timeout=WAIT) == "hello, Ada"
        assert {finding.check for finding in found} == set(Check)
        assert [finding for finding in found if finding.remedy and finding.check not in ABOUT_THE_MACHINE] == []

    play(scenario())


def test_an_application_without_an_old_version_is_warned(database_url):
    """Runs of version 1 wait in a queue that a worker has, and this application knows version 2 only."""

    async def scenario() -> None:
        async with engine_at(database_url, greet) as old, engine_at(database_url, greet_again, starts=False) as new:
            await old.engine.enqueue(greet, "Ada", delay="1h")
            lanes = {engine: [finding.level for finding in await engine.examine() if finding.check is Check.LANES] for engine in (old.engine, new.engine)}
        assert lanes == {old.engine: [Level.OK], new.engine: [Level.WARNING]}

    play(scenario())


def test_locks_on_a_file_survive_the_doctor(sqlite_url):
    """Closing any descriptor of a lock file would drop the proof that this process lives; another process still finds it held."""

    async def scenario() -> None:
        async with engine_at(sqlite_url, greet) as heard:
            await heard.engine.examine()
            folder = heard.engine._backend.database.path.with_name("outlast.db-workers")
            (lock,) = folder.iterdir()
            assert tried_by_another_process(lock) == "held"

    play(scenario())
