"""Copies and moves killed and frozen at each of their points: what has a final name is whole at every moment, and in the end there is one file."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.outage.small_disk import SmallDisk

from .copy_child import CHUNK_BYTES, perform, refuse_links

CHILD = Path(__file__).with_name("copy_child.py")
SOURCE = str(Path(__file__).parents[2] / "src")
SECONDS_MAX = 120.0
LOOK_EVERY = 0.002

CONTENT = hashlib.shake_256(b"copy").digest(3 * CHUNK_BYTES + 17)  # four chunks
CHUNKS = [("chunk written", number) for number in (1, 2, 3, 4)]
COPYING = [("stage opened", 1), *CHUNKS, ("stage written", 1), ("stage synced", 1), ("stage finished", 1)]
PUBLISHING = [("published", 1), ("folder synced", 1)]
POINTS = {
    "copy": [("source opened", 1), *COPYING, *PUBLISHING, ("stage removed", 1)],
    "copy without links": [("stage finished", 1), *PUBLISHING],
    "move": [("source opened", 1), ("stage opened", 1), *PUBLISHING, ("source leaves", 1), ("source removed", 1), ("stage removed", 1)],
    "move without links": [("source opened", 1), ("stage opened", 1), *PUBLISHING, ("stage removed", 1)],
    "move across": [("source opened", 1), *COPYING, *PUBLISHING, ("source leaves", 1), ("source removed", 1), ("stage removed", 1)],
}
KILLS = [pytest.param(way, *point, id=f"{way}, {point[0]} {point[1]}") for way, points in POINTS.items() for point in points]
FREEZES = [parameter for parameter in KILLS if parameter.values[1] != "chunk written" or parameter.values[2] == 2]


@dataclass
class Place:
    """A source, a target, and a watcher that looks at them all the time."""

    way: str
    source: Path
    target: Path
    faults: list[str] = field(default_factory=list)
    looks: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def is_move(self) -> bool:
        return self.way.startswith("move")

    def start(self, number: int = 1, **more: object) -> "subprocess.Popen[str]":
        told = {
            "what": self.way.split()[0],
            "source": str(self.source),
            "target": str(self.target),
            "number": number,
            "has_no_links": "without" in self.way,
            **more,
        }
        environment = os.environ | {"PYTHONPATH": SOURCE}
        return subprocess.Popen([sys.executable, str(CHILD), json.dumps(told)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def cut_off(self, number: int = 1, **more: object) -> str:
        """Return what an attempt says in a process of its own; nothing when it was killed."""
        child = self.start(number, **more)
        said, complained = child.communicate(timeout=SECONDS_MAX)
        assert child.returncode in (0, -signal.SIGKILL), complained
        assert (child.returncode == 0) == bool(said), complained
        return said.strip().strip("'\"")

    def go_on(self, number: int = 2, *, goes_on: bool = True) -> str:
        """Reconcile and go on in this process, which is another one."""
        with pytest.MonkeyPatch.context() as patch:
            if "without" in self.way:
                patch.setattr(os, "link", refuse_links)
            return perform(self.way.split()[0], str(self.source), str(self.target), number, goes_on=goes_on)

    def watch(self) -> None:
        while not self.over.is_set():
            self.look()
            self.over.wait(LOOK_EVERY)

    def look(self) -> None:
        """Whatever has the final name is whole; and of a file that is moved there is always one. The source is looked at first: it leaves last."""
        source, target = content_of(self.source), content_of(self.target)
        self.looks += 1
        if target is not None and target != CONTENT:
            self.faults.append(f"the target has {len(target)} bytes")
        if source != CONTENT and (source is not None or not self.is_move or target is None):
            self.faults.append("the source is gone" if source is None else "the source has changed")

    def assert_whole(self) -> None:
        assert content_of(self.target) == CONTENT
        assert [path.name for path in self.target.parent.iterdir()] == [self.target.name]
        assert [path.name for path in self.source.parent.iterdir()] == ([] if self.is_move else [self.source.name])

    def assert_untouched(self) -> None:
        assert content_of(self.source) == CONTENT
        assert not self.target.exists()


def content_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def place_of(way: str, folder: Path) -> Iterator[Place]:
    source, target = folder / "from" / "film.mkv", folder / "to" / "new.mkv"
    source.parent.mkdir()
    target.parent.mkdir()
    source.write_bytes(CONTENT)
    with contextlib.ExitStack() as stack:
        if "across" in way:
            if os.geteuid():
                pytest.skip("only root can mount a small file system")
            stack.enter_context(SmallDisk(target.parent, megabytes=16))
        place = Place(way, source, target)
        watcher = threading.Thread(target=place.watch)
        watcher.start()
        try:
            yield place
        finally:
            place.over.set()
            watcher.join()
        assert place.looks
        assert not place.faults


def wait_until_stopped(child: "subprocess.Popen[str]") -> None:
    found = os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert found is not None
    assert found.si_status == signal.SIGSTOP, child.communicate()


@pytest.mark.parametrize(("way", "point", "count"), KILLS)
def test_a_kill_at_each_point_leaves_one_whole_file(way: str, point: str, count: int, tmp_path: Path) -> None:
    """Killed anywhere, the next worker finds it done or does it again: one whole file, no temporary name, never anything partial."""
    with place_of(way, tmp_path) as place:
        assert place.cut_off(point=point, count=count) == ""
        said = place.go_on()
        assert "done: " in said, said
        place.assert_whole()


@pytest.mark.parametrize("way", POINTS)
@pytest.mark.parametrize("killed_at", ["stage opened", "published"])
def test_a_kill_of_the_reconciler_leaves_one_whole_file(way: str, killed_at: str, tmp_path: Path) -> None:
    """The worker that reconciles is killed too, when it has revoked or removed the source: a third one still ends with one whole file."""
    with place_of(way, tmp_path) as place:
        assert place.cut_off(point=killed_at) == ""
        point = "source removed" if place.is_move and killed_at == "published" else "attempt revoked"
        assert place.cut_off(2, point=point, goes_on=False) == ""
        said = place.go_on()
        assert "done: " in said, said
        place.assert_whole()


@pytest.mark.parametrize(("way", "point", "count"), FREEZES)
def test_a_thawed_worker_changes_nothing(way: str, point: str, count: int, tmp_path: Path) -> None:
    """Frozen anywhere, while another worker reconciles and finishes: thawed it ends, and the file and the folders are as they were."""
    with place_of(way, tmp_path) as place:
        frozen = place.start(point=point, count=count, deed="stop")
        try:
            wait_until_stopped(frozen)
            said = place.go_on()
            assert "done: " in said, said
            place.assert_whole()
            before = place.target.stat()
        finally:
            frozen.send_signal(signal.SIGCONT)
            said, complained = frozen.communicate(timeout=SECONDS_MAX)
        assert frozen.returncode == 0, complained
        after = place.target.stat()
        assert (after.st_ino, after.st_mtime_ns, after.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size), said
        place.assert_whole()


@pytest.mark.parametrize(
    ("way", "point", "count"),
    [parameter for parameter in FREEZES if parameter.values[1] in ("source opened", "stage opened", "chunk written", "stage finished")],
)
def test_a_thawed_worker_does_nothing_after_it_was_revoked(way: str, point: str, count: int, tmp_path: Path) -> None:
    """Frozen before it published, and nobody goes on: what was called not done stays not done, and no temporary name is left."""
    with place_of(way, tmp_path) as place:
        frozen = place.start(point=point, count=count, deed="stop")
        try:
            wait_until_stopped(frozen)
            assert place.go_on(goes_on=False) == "revoked"
            place.assert_untouched()
        finally:
            frozen.send_signal(signal.SIGCONT)
            said, complained = frozen.communicate(timeout=SECONDS_MAX)
        assert frozen.returncode == 0, complained
        assert said.strip("'\"").startswith("not done"), said
        place.assert_untouched()
        assert list(place.target.parent.iterdir()) == []
