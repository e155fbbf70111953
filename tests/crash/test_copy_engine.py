"""Copies and moves as effects of a run whose worker is killed or frozen: the run goes on elsewhere, and there is one whole file."""

import os
import signal
from pathlib import Path

import pytest

from .test_copy_kills import CONTENT
from .world import Child, World

CHILD = Path(__file__).with_name("copy_engine_child.py")
NAME = os.fsdecode(b"film\xff.mkv")
FOLDERS = ("from", "waiting", "to")
POINTS = [("source opened", 1), ("chunk written", 2), ("published", 2), ("source removed", 1)]
"""The second to publish is the move."""


class Film:
    """A file that is on its way, and the workers that carry it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.world = World(url, folder)
        self._folder = folder
        for name in FOLDERS:
            (folder / name).mkdir()
        (folder / "from" / NAME).write_bytes(CONTENT)

    def start(self, point: str = "-", count: int = 1, deed: str = "kill") -> Child:
        child = Child([self.world.url, str(self._folder), point, str(count), deed], self._folder, program=CHILD)
        self.world.children.append(child)
        return child

    def assert_arrives(self) -> None:
        """Another worker ends the run, and what is in the folders is what should be."""
        worker = self.start()
        assert worker.wait_for("moved ") == f"moved {len(CONTENT)}", worker.report()
        assert worker.wait() == 0, worker.report()
        self.assert_arrived()

    def assert_arrived(self) -> None:
        assert {name: os.listdir(self._folder / name) for name in FOLDERS} == {"from": [NAME], "waiting": [], "to": [NAME]}
        assert (self._folder / "from" / NAME).read_bytes() == (self._folder / "to" / NAME).read_bytes() == CONTENT

    def state(self) -> tuple[int, int]:
        found = (self._folder / "to" / NAME).stat()
        return found.st_ino, found.st_ctime_ns


@pytest.mark.parametrize(("point", "count"), POINTS)
def test_a_run_whose_worker_is_killed_in_an_effect_goes_on(database_url: str, tmp_path: Path, point: str, count: int) -> None:
    """Another worker asks the reconciler, and the run ends with one whole file under its final name and no temporary one."""
    film = Film(database_url, tmp_path)
    with film.world:
        killed = film.start(point, count)
        assert killed.wait() == -signal.SIGKILL, killed.report()
        film.assert_arrives()


@pytest.mark.parametrize("point", ["chunk written", "source leaves"])
def test_a_run_whose_worker_is_frozen_in_an_effect_goes_on(database_url: str, tmp_path: Path, point: str) -> None:
    """Silent past its lease it loses the run; its attempt is revoked or finished by another, and thawed it changes nothing."""
    film = Film(database_url, tmp_path)
    with film.world:
        frozen = film.start(point, 1, "wait")
        frozen.wait_for("here")
        film.world.freeze(frozen)
        film.assert_arrives()
        before = film.state()
        (tmp_path / "go").touch()
        frozen.signal(signal.SIGCONT)
        assert frozen.wait() == 0, frozen.report()
        assert film.state() == before
        film.assert_arrived()
