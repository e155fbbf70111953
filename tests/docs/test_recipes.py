"""Each recipe survives a real kill: SIGKILL at each point of its page's table, another worker, and what the other side has.

Those that say that a frozen worker is refused are frozen, taken over and thawed too.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, make_url, text

from .pages import PROJECT, blocks_of, rows_of

CHILD = Path(__file__).with_name("recipe_child.py")
SECONDS_MAX = 120.0
BEFORE_THE_REQUEST = ("urllib.request:urlopen", "before")
AFTER_THE_ANSWER = ("urllib.request:urlopen", "after")
ARRIVED, DONE = "request arrived", "done, not answered"
SERVED_AFTER_THE_QUESTION, SERVED_AFTER_THE_NEXT = (ARRIVED, "asked"), (ARRIVED, DONE)
"""A request whose client is killed when it arrives, and which is served when the next worker has asked, or even after its own request."""
AT_A_PROVIDER = {
    "before": BEFORE_THE_REQUEST,
    "arrived": SERVED_AFTER_THE_QUESTION,
    "served late": SERVED_AFTER_THE_NEXT,
    "done": (DONE, None),
    "answered": AFTER_THE_ANSWER,
}


@dataclass
class Recipe:
    """A page's files in a folder, and a worker for them."""

    page: str
    folder: Path
    order: dict[str, Any]
    children: list["subprocess.Popen[str]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        blocks = blocks_of(PROJECT / "docs" / "recipes" / self.page)
        for block in blocks:
            if block.file_name:
                (self.folder / block.file_name).write_text(block.text, encoding="utf-8")

    def start(self, stop: tuple[str, str] | None = None) -> "subprocess.Popen[str]":
        order = {"folder": str(self.folder), "url": f"sqlite:///{self.folder / 'outlast.db'}", "stop": stop, **self.order}
        environment = os.environ | {"PYTHONPATH": str(PROJECT / "src")}
        child = subprocess.Popen([sys.executable, str(CHILD), json.dumps(order)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        self.children.append(child)
        return child

    def is_killed(self, at: tuple[str, str] | None) -> None:
        """Start a worker, and see that it was killed; by itself, or by the other side."""
        child = self.start(at)
        _, complained = child.communicate(timeout=SECONDS_MAX)
        assert child.returncode == -signal.SIGKILL, complained

    def freeze_at(self, place: str) -> "subprocess.Popen[str]":
        """Start a worker and freeze it where it is about to make a call; but not inside a write to the engine's file, which it would block."""
        child = self.start((place, "held"))
        wait_until(f"it is about to call {place}", lambda: (self.folder / "held").exists() or child.poll() is not None)
        for _ in range(100):
            child.send_signal(signal.SIGSTOP)
            if self.can_write():
                return child
            child.send_signal(signal.SIGCONT)
        raise AssertionError("it was never outside of a write")

    def can_write(self) -> bool:
        with closing(sqlite3.connect(self.folder / "outlast.db", timeout=1, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN EXCLUSIVE")
                connection.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return False
            return True

    def thaw(self, child: "subprocess.Popen[str]") -> str:
        """Let a frozen worker go on with its call, and return what it says in the end."""
        (self.folder / "go").touch()
        child.send_signal(signal.SIGCONT)
        said, complained = child.communicate(timeout=SECONDS_MAX)
        assert child.returncode == 0, complained
        return said

    def finishes(self) -> Any:
        """Start a worker and return the run's result."""
        child = self.start()
        said, complained = child.communicate(timeout=SECONDS_MAX)
        assert child.returncode == 0, complained
        return json.loads(said)

    def end(self) -> None:
        for child in self.children:
            child.kill()
            child.communicate()


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    """Wait until something holds that can only be asked for again and again."""
    patience = threading.Event()
    for _ in range(int(SECONDS_MAX / 0.05)):
        if holds():
            return
        patience.wait(0.05)
    raise AssertionError(f"never came true: {what}")


@contextmanager
def recipe(page: str, folder: Path, **order: Any) -> Iterator[Recipe]:
    made = Recipe(page, folder, order)
    try:
        yield made
    finally:
        made.end()


@contextmanager
def served(folder: Path, page: str, module: str, server: str) -> Iterator[Any]:
    """The provider that a page shows, which says how far a request has come in a list."""
    names: dict[str, Any] = {}
    (block,) = [block for block in blocks_of(PROJECT / "docs" / "recipes" / page) if block.file_name == f"{module}.py"]
    exec(compile(block.text, str(folder / f"{module}.py"), "exec", dont_inherit=True), names)
    provider = names[server]()
    thread = threading.Thread(target=provider.serve_forever)
    thread.start()
    try:
        yield provider
    finally:
        provider.shutdown()
        thread.join(SECONDS_MAX)
        provider.server_close()


class Killer:
    """Kills a recipe's worker when its request has come this far at the provider, and has the request served when the next worker has come so far."""

    def __init__(self, made: Recipe, moment: str, served_after: str | None) -> None:
        self._recipe = made
        self._moment = moment
        self._served_after = served_after
        self._killed_in: int | None = None
        self._may_be_served = threading.Event()
        self.is_served = threading.Event()

    def __call__(self, moment: str) -> None:
        if threading.get_ident() == self._killed_in:
            self.is_served.set()
        elif self._killed_in is not None and moment == self._served_after:
            self._may_be_served.set()
        elif self._killed_in is None and moment == self._moment:
            self._killed_in = threading.get_ident()
            self._recipe.children[-1].kill()
            if self._served_after is None:
                self.is_served.set()
            else:
                self._may_be_served.wait(SECONDS_MAX)


def killed_and_finished(made: Recipe, provider: Any, point: Any) -> Any:
    """Kill a worker at a point, in itself or at the provider, and return what the next one finds or makes."""
    if point[0] not in (ARRIVED, DONE):
        made.is_killed(point)
        return made.finishes()
    killer = provider.passes = Killer(made, *point)
    made.is_killed(None)
    found = made.finishes()
    assert killer.is_served.wait(SECONDS_MAX), "the request of the killed worker was never served"
    return found


@pytest.mark.parametrize("point", AT_A_PROVIDER.values(), ids=AT_A_PROVIDER.keys())
def test_an_api_with_keys_charges_once(tmp_path: Path, point: Any) -> None:
    """Wherever the worker is killed there is one charge in the end, and the run has its receipt."""
    with (
        served(tmp_path, "http.md", "charging_provider", "Provider") as provider,
        recipe(
            "http.md", tmp_path, module="charging", task="collect", input_type="Charge", input={"customer": "ada", "cents": 1250}, world=provider.url
        ) as made,
    ):
        assert killed_and_finished(made, provider, point) == {"id": "ch_1", "cents": 1250}
        assert list(provider.charges.values()) == [{"id": "ch_1", "cents": 1250}]


@pytest.mark.parametrize("point", AT_A_PROVIDER.values(), ids=AT_A_PROVIDER.keys())
def test_a_conditional_put_writes_one_version(tmp_path: Path, point: Any) -> None:
    """Wherever the worker is killed there is one new version in the end, and the run has its ETag."""
    with served(tmp_path, "objects.md", "publishing_store", "Store") as store:
        order = {"module": "publishing", "task_module": "publishing_task", "task": "publish", "input_type": "Page", "world": store.url}
        assert store.put("index", "old", "somebody", None, "*") == '"v1"'
        if point in (BEFORE_THE_REQUEST, AFTER_THE_ANSWER):  # of this request, not of the look before it
            point = ("publishing:Bucket.put", point[1])
        with recipe("objects.md", tmp_path, input={"name": "index", "text": "new"}, **order) as made:
            assert killed_and_finished(made, store, point) == '"v2"'
        assert [version[1] for version in store.versions["index"]] == ["old", "new"]


PRICE: dict[str, Any] = {"module": "pricing", "task": "change_price", "input_type": "Price", "input": {"item": "bread", "cents": 350}}
REPORT: dict[str, Any] = {"module": "reporting", "task": "report", "input_type": None, "input": "all is well"}


@contextmanager
def shop_of(request: pytest.FixtureRequest, folder: Path, foreign: str) -> Iterator[Engine]:
    """A database that is not the engine's, with one row to be written."""
    url = f"sqlite:///{folder / 'shop.db'}"
    if foreign == "postgres":
        url = make_url(request.getfixturevalue("postgres_url")).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    shop = create_engine(url)
    with shop.begin() as connection:
        connection.execute(text("CREATE TABLE price (item text PRIMARY KEY, cents bigint, token bigint NOT NULL DEFAULT 0, done_by text NOT NULL DEFAULT '')"))
        connection.execute(text("INSERT INTO price (item, cents) VALUES ('bread', 0)"))
    try:
        yield shop
    finally:
        shop.dispose()


def address_of(shop: Engine) -> str:
    return shop.url.render_as_string(hide_password=False)


def price_in(shop: Engine) -> tuple[int, int]:
    """Return cents and token."""
    with shop.connect() as connection:
        ((cents, token),) = connection.execute(text("SELECT cents, token FROM price")).all()
    return cents, token


COMMIT = "sqlalchemy.engine.default:DefaultDialect.do_commit"


@pytest.mark.parametrize("foreign", ["sqlite", "postgres"])
@pytest.mark.parametrize(
    ("point", "cents_then"),
    [(("sqlalchemy.engine:Connection.execute", "before"), 0), ((COMMIT, "before"), 0), ((COMMIT, "after"), 350)],
    ids=["before", "uncommitted", "committed"],
)
def test_a_row_with_a_token_is_written_once(request: pytest.FixtureRequest, tmp_path: Path, foreign: str, point: tuple[str, str], cents_then: int) -> None:
    """Wherever the worker is killed the row has the new price in the end, under a token that a frozen worker does not have."""
    with shop_of(request, tmp_path, foreign) as shop, recipe("sql.md", tmp_path, world=address_of(shop), **PRICE) as made:
        made.is_killed(point)
        cents, first = price_in(shop)
        assert cents == cents_then
        assert made.finishes() is True
        cents, last = price_in(shop)
    assert cents == 350
    assert last == first if cents_then else last > first


@pytest.mark.parametrize("foreign", ["sqlite", "postgres"])
def test_a_thawed_statement_with_an_older_token_changes_nothing(request: pytest.FixtureRequest, tmp_path: Path, foreign: str) -> None:
    """A worker that was frozen before its statement and taken over sends it in the end, and the row stays as it is."""
    with shop_of(request, tmp_path, foreign) as shop, recipe("sql.md", tmp_path, world=address_of(shop), lease="2s", **PRICE) as made:
        frozen = made.freeze_at("sqlalchemy.engine:Connection.execute")
        assert made.finishes() is True
        with shop.begin() as connection:
            connection.execute(text("UPDATE price SET cents = 999"))
        assert made.thaw(frozen) == "true"
        assert price_in(shop)[0] == 999


@pytest.mark.parametrize(
    ("point", "then"),
    [
        (("reporting:temporary", "before"), 0),
        (("reporting:make_durable", "before"), 1),
        (("os:replace", "before"), 1),
        (("os:replace", "after"), 1),
    ],
    ids=["before", "written", "flushed", "renamed"],
)
def test_a_file_is_written_whole(tmp_path: Path, point: tuple[str, str], then: int) -> None:
    """Wherever the worker is killed there is one whole file in the end, and nothing beside it; its proven death spares the effect's time-out."""
    out = tmp_path / "out"
    out.mkdir()
    with recipe("files.md", tmp_path, world=str(out), **REPORT) as made:
        made.is_killed(point)
        assert len(list(out.iterdir())) == then
        assert (out / "report.txt").exists() == (point == ("os:replace", "after"))
        assert made.finishes() == 11
    assert {path.name: path.read_text() for path in out.iterdir()} == {"report.txt": "all is well"}


def test_a_thawed_rename_finds_nothing_to_rename(tmp_path: Path) -> None:
    """A worker that was frozen before its rename and taken over makes it in the end, and the file of the other one stays as it is."""
    out = tmp_path / "out"
    out.mkdir()
    with recipe("files.md", tmp_path, world=str(out), lease="2s", **REPORT) as made:
        frozen = made.freeze_at("os:replace")
        assert made.finishes() == 11
        written = (out / "report.txt").stat()
        assert made.thaw(frozen) == "11"
    assert os.path.samestat(written, (out / "report.txt").stat())
    assert [path.name for path in out.iterdir()] == ["report.txt"]


@pytest.mark.parametrize("page", sorted((PROJECT / "docs" / "recipes").glob("*.md")), ids=lambda page: page.name)
def test_each_recipe_says_what_is_there_after_a_kill(page: Path) -> None:
    """The page has a table of points, and says for each what the other side has and what is done next."""
    rows = rows_of(page, "killed")
    assert len(rows) >= 3
    assert all(len(row) == 3 and all(row) for row in rows)
