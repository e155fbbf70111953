"""What the pages say of the code is so: numbers, states, tests, commands, links, privileges."""

import asyncio
import importlib
import inspect
import re
from datetime import timedelta
from pathlib import Path

import click
import psycopg
import pytest

import outlast.cli
from outlast import Attempt, Context, Effect, RunStatus, connect, effect, limits, task
from outlast.decision import DecisionState
from outlast.duration import duration_text
from outlast.ledger.operation import OperationStatus
from outlast.native.transitions import ALLOWED

from .pages import PAGES, PROJECT, anchors_of, links_of, name_of, prose_of, read, rows_of

DOCS = PROJECT / "docs"
NAMED_TEST = re.compile(r"`(test_\w+)`")


def shown_limit(name: str) -> str:
    """Return a limit's value as the page writes it."""
    value = getattr(limits, name)
    if isinstance(value, timedelta):
        return duration_text(value)
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if "BYTES" in name and value % size == 0:
            return f"{value // size} {unit}"
    return f"{value:,}"


def test_limits_are_those_of_the_code():
    """The page has every limit with its value, and no other."""
    written = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", read(DOCS / "limits.md"), re.MULTILINE))
    assert written == {name: shown_limit(name) for name in vars(limits) if name.isupper()}


def test_states_are_those_of_the_code():
    """The page has every state of a run, and every allowed change of it."""
    concepts = DOCS / "concepts.md"
    assert {row[0].strip("`"): row[2] == "yes" for row in rows_of(concepts, "state")} == {status.value: status.is_terminal for status in RunStatus}
    changes = {(before, after) for row in rows_of(concepts, "from") for before in row[0].split(", ") for after in row[1].split(", ")}
    assert changes == {(before or "-", after.value) for before, after in ALLOWED}


@pytest.mark.parametrize(("part", "states"), [("Operations", OperationStatus), ("Decisions", DecisionState)])
def test_every_state_of_the_ledger_is_explained(part: str, states: type[OperationStatus] | type[DecisionState]):
    """The page of states says of each state of operations and decisions what it means, in their order."""
    (text,) = re.findall(rf"^## {part}$(.*?)(?=^<!--)", read(DOCS / "states.md"), re.DOTALL | re.MULTILINE)
    assert re.findall(r"^\| `(\w+)` \| \w", text, re.MULTILINE) == list(states)


def test_options_of_an_effect_are_those_of_the_code():
    """The page has every option of `@effect` and of `with_options`, and the numbers that hold without one."""
    declared = [name for name in inspect.signature(effect).parameters if name != "function"]
    rows = {row[0].strip("`"): row[1] for row in rows_of(DOCS / "effects.md", "option")}
    assert sorted(rows) == sorted(declared)
    seconds = {name: f"{int(value.total_seconds())} s" for name, value in (("timeout", limits.EFFECT_TIMEOUT), ("settle", limits.EFFECT_SETTLE))}
    assert {name: rows[name] for name in seconds} == seconds
    (changed,) = re.findall(r"\.with_options\((.*?)\)` changes them", read(DOCS / "effects.md"))
    assert changed.replace("=", "").split(", ") == [name for name in inspect.signature(Effect.with_options).parameters if name != "self"]


def existing_tests() -> set[str]:
    """Return the names of all tests and of the suites that adapters run."""
    files = [*(PROJECT / "tests").rglob("*.py"), *(PROJECT / "src" / "outlast" / "testing").rglob("*.py")]
    return {name for file in files for name in re.findall(r"^\s*(?:async )?def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)}


def test_every_promise_names_existing_tests():
    """Each promise has at least one test, and no test that the page names is missing."""
    text = prose_of(DOCS / "promises.md")
    promises = re.findall(r"^## (\d+\. .+?)$(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
    assert [int(title.split(".")[0]) for title, _ in promises] == list(range(1, len(promises) + 1))
    assert [title for title, body in promises if not NAMED_TEST.search(body)] == []
    assert set(NAMED_TEST.findall(text)) - existing_tests() == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path):
    """Each link of the page that stays in the project leads to a file, and to a heading of it where it names one."""
    astray = []
    for link in links_of(page):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            astray.append(link)
    assert not astray


def test_every_page_is_reached_from_the_readme():
    """The README links to every page of the documentation."""
    linked = {(PROJECT / link.partition("#")[0]).resolve() for link in links_of(PROJECT / "README.md")}
    assert set(PAGES) - linked - {PROJECT / "README.md"} == set()


def test_every_command_and_option_is_explained():
    """The page of the command line has a part for each command, and each of its own options is named there."""
    parts = dict(re.findall(r"^## (\w+)$(.*?)(?=^## |\Z)", read(DOCS / "cli.md"), re.DOTALL | re.MULTILINE))
    missing = []
    for name in outlast.cli.COMMANDS:
        command = getattr(importlib.import_module(f"outlast.cli.{name}"), name)
        options = {option for parameter in command.params if isinstance(parameter, click.Option) and not parameter.hidden for option in parameter.opts}
        missing += [f"{name} {option}" for option in options - {"--json"} if option not in parts[name] and option not in ("--app", "--database")]
    assert not missing
    assert set(parts) == set(outlast.cli.COMMANDS)


def test_what_the_pages_tell_to_make_can_be_made():
    """Each `make` that a page shows is in the Makefile."""
    targets = set(re.findall(r"^(\w+):", read(PROJECT / "Makefile"), re.MULTILINE))
    told = {target for page in PAGES for target in re.findall(r"(?:^    |`)make (\w+)", read(page), re.MULTILINE)}
    assert told <= targets


def test_feature_pages_say_what_a_crash_does():
    """Each page about a feature has a box that answers what happens if it crashes there."""
    without = {"cli.md", "limits.md", "promises.md"}
    assert [page.name for page in DOCS.rglob("*.md") if page.name not in without and "> **What if it crashes here?**" not in read(page)] == []


def test_privileges_that_the_page_grants_are_enough(postgres_url: str):
    """A role with what the page grants, and no more, enqueues, and executes steps, transactions and effects."""
    (grants,) = re.findall(r"```sql\n(.*?)```", read(DOCS / "postgresql.md"), re.DOTALL)
    role = f"app_{postgres_url.rpartition('/')[2]}"

    async def migrate() -> None:
        async with connect(postgres_url) as engine:
            await engine.find("no run")

    async def use() -> str:
        @task
        async def greet(ctx: Context) -> str:
            return await ctx.step(hello) + await ctx.transaction(ctx.database, world) + await ctx.effect(mark, "!")

        def hello() -> str:
            return "hello"

        def world(connection: psycopg.Connection) -> str:
            return ", world"

        @effect
        def mark(attempt: Attempt, what: str) -> str:
            return what

        url = re.sub(r"//.*?@|//", f"//{role}@", postgres_url, count=1)
        async with connect(url, tasks=[greet], migrate=False) as engine:
            await engine.start()
            return await (await engine.enqueue(greet)).result(timeout=30)

    asyncio.run(migrate())
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'CREATE ROLE "{role}" LOGIN')
        try:
            connection.execute(grants.replace("TO app", f'TO "{role}"').encode())
            assert asyncio.run(use()) == "hello, world!"
        finally:
            connection.execute(f'DROP OWNED BY "{role}"')
            connection.execute(f'DROP ROLE "{role}"')
