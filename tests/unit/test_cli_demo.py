"""The demo's own parts: partial files, the register, and a proof that sees what is wrong."""

import hashlib
import os
from pathlib import Path, PurePath
from types import SimpleNamespace

import pytest

from outlast.cli.demo.partial import Partial, digest_of, publish
from outlast.cli.demo.plot import Interruption, open_steps, went_on
from outlast.cli.demo.proof import prove
from outlast.cli.demo.register import Register, RegisterEntry
from outlast.cli.demo.source import ODD_NAMES, generate, list_folder
from outlast.cli.demo.world import Entry, World
from outlast.run import Progress, RunStatus

DATA = hashlib.shake_128(b"data").digest(600_000)


def progress_after(count):
    """What an attempt reports after so many bytes."""
    return Progress(count, len(DATA), hashlib.sha256(DATA[:count]).hexdigest())


@pytest.fixture
def target(tmp_path):
    """Where a file is to arrive, in a folder that is not there yet."""
    return tmp_path / "deep" / "target"


def test_an_attempt_goes_on_with_what_was_reported(target):
    """The bytes that an earlier attempt reported are taken over, those it wrote and did not report are not."""
    with Partial(target, "run", 1, 1) as first:
        first.write(DATA[:500_000])
    with Partial(target, "run", 2, 1) as second:
        assert second.take_over(progress_after(400_000)) == 400_000
        second.write(DATA[400_000:])
        second.remove_older()
    assert second.digest == hashlib.sha256(DATA).hexdigest() == digest_of(second.path)
    assert [path.name for path in target.parent.iterdir()] == [second.path.name]


@pytest.mark.parametrize("damage", ["shorter", "other bytes", "gone"])
def test_a_damaged_partial_file_is_not_taken_over(target, damage):
    """What a loss of power, or anybody, did to a partial file is found by its hash, and the copy begins anew."""
    with Partial(target, "run", 1, 1) as first:
        first.write(DATA[:300_000] if damage == "shorter" else bytes(500_000))
    if damage == "gone":
        first.path.unlink()
    with Partial(target, "run", 2, 1) as second:
        assert second.take_over(progress_after(400_000)) == 0


def test_a_late_writer_cannot_reach_the_file_that_took_over(target):
    """A worker that wakes up after its run went on elsewhere writes into a file without a name."""
    late = Partial(target, "run", 1, 1).__enter__()
    late.write(DATA[:400_000])
    with Partial(target, "run", 2, 1) as second:
        second.take_over(progress_after(400_000))
        second.write(DATA[400_000:])
        second.remove_older()
    publish(second.path, target, second.digest)
    late.write(b"late")
    late.__exit__(None, None, None)
    assert target.read_bytes() == DATA
    assert list(target.parent.iterdir()) == [target]


def test_an_attempt_that_got_nowhere_leaves_nothing(target):
    """A worker that wakes up just before it makes its file removes it again when it is told."""
    with pytest.raises(RuntimeError), Partial(target, "run", 1, 1):
        raise RuntimeError
    assert not list(target.parent.iterdir())


@pytest.mark.parametrize("moment", ["before it is published", "afterwards"])
def test_an_attempt_that_ends_too_late_leaves_nothing(target, moment):
    """A slow worker that never heard that its run went on elsewhere copies all of the file, and nothing of it stays."""
    with Partial(target, "run", 2, 1) as second:
        second.write(DATA)
        second.remove_older()
    late = Partial(target, "run", 1, 1).__enter__()
    late.write(DATA)
    late.remove_older()
    if moment == "before it is published":
        late.__exit__(None, None, None)
    publish(second.path, target, second.digest)
    if moment == "afterwards":
        late.__exit__(None, None, None)
    assert list(target.parent.iterdir()) == [target]
    assert target.read_bytes() == DATA


def test_publishing_may_be_repeated(target):
    """A publish that was cut off after its rename is finished by the next one; a file with other bytes is not believed."""
    with Partial(target, "run", 1, 1) as partial:
        partial.write(DATA)
    publish(partial.path, target, partial.digest)
    publish(partial.path, target, partial.digest)
    assert target.read_bytes() == DATA
    with pytest.raises(FileNotFoundError):
        publish(partial.path, target, "another digest")


def test_a_file_is_registered_once(tmp_path):
    """Whoever registers a file a second time finds it there, and drafts of attempts that were cut off go away."""
    register = Register(tmp_path / "register")
    entry = RegisterEntry(b"caf\xe9", 3, "digest", "run")
    assert register.add(entry, 1, 1)
    (tmp_path / "register" / ".run.2.1.part").write_bytes(b"half")
    assert not register.add(entry, 3, 1)
    assert register.read() == [entry]
    assert not register.drafts()


def test_the_generated_source_has_odd_names(tmp_path):
    """The demo's own files hold every name of the list that the file system takes, the largest first."""
    generate(tmp_path)
    listing = list_folder(tmp_path)
    assert {bytes(file.name) for file in listing.files} >= set(ODD_NAMES)
    assert [file.size for file in listing.files] == sorted((file.size for file in listing.files), reverse=True)
    assert 36 <= len(listing.files) <= 48
    assert listing.files[0].size == 20 << 20


def test_links_and_pipes_are_skipped_with_a_reason(tmp_path):
    """What is no regular file is named and not opened."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder link").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    listing = list_folder(tmp_path)
    assert [file.name for file in listing.files] == [PurePath("file")]
    assert len(listing.skipped) == 3


@pytest.fixture
def finished(tmp_path):
    """A demo that went well: two files, their copies, their entries and their runs."""
    source, world = tmp_path / "source", World(tmp_path, 0)
    for folder in (source, world.library):
        (folder / "inner").mkdir(parents=True)
        (folder / "one").write_bytes(b"1")
        (folder / "inner" / "two").write_bytes(b"22")
    for name in (b"one", b"inner/two"):
        Register(world.register).add(RegisterEntry(name, 1, "", name.decode().replace("/", "-")), 1, 1)
    listing = list_folder(source)
    states = {str(file.name): SimpleNamespace(file=file, status=RunStatus.SUCCEEDED, why="") for file in listing.files}
    return listing, world, SimpleNamespace(files=states)


def test_a_proof_holds_where_nothing_is_wrong(finished):
    """Everything arrived: no complaint."""
    proof = prove(*finished)
    assert proof.complaints == []
    assert (proof.files, proof.whole, proof.registered, proof.succeeded) == (2, 2, 2, 2)


def damage_bytes(world, watch):
    (world.library / "one").write_bytes(b"2")


def remove_target(world, watch):
    (world.library / "one").unlink()


def leave_partial(world, watch):
    (world.library / "inner" / ".run.1.1.part").write_bytes(b"")


def leave_draft(world, watch):
    (world.register / ".run.1.1.part").write_bytes(b"")


def register_twice(world, watch):
    (entry, *_) = world.register.glob("*.json")
    (world.register / "again.json").write_bytes(entry.read_bytes())


def lose_entry(world, watch):
    next(world.register.glob("*.json")).unlink()


def register_stranger(world, watch):
    Register(world.register).add(RegisterEntry(b"stranger", 1, "", "run"), 1, 1)


def fail_run(world, watch):
    watch.files["one"].status = RunStatus.FAILED


@pytest.mark.parametrize("damage", [damage_bytes, remove_target, leave_partial, leave_draft, register_twice, lose_entry, register_stranger, fail_run])
def test_a_proof_sees_what_is_wrong(finished, damage):
    """Each single thing that could have gone wrong makes the proof fail."""
    listing, world, watch = finished
    damage(world, watch)
    assert not prove(listing, world, watch).holds


def test_what_was_interrupted_is_read_from_the_journal():
    """A step that began and said nothing more was cut off, and goes on under a newer token at its first byte."""
    journal = [
        Entry(1.0, 10, "a", "copy", 5, "began"),
        Entry(1.0, 10, "a", "copy", 5, "went_on", 0),
        Entry(1.1, 10, "b", "verify", 6, "began"),
        Entry(1.2, 10, "b", "verify", 6, "ended"),
        Entry(1.3, 11, "c", "copy", 7, "began"),
        Entry(4.0, 11, "a", "copy", 8, "began"),
        Entry(4.1, 11, "a", "copy", 8, "went_on", 400),
    ]
    (cut_off,) = open_steps(journal, 10)
    assert cut_off.run == "a"
    continuation = went_on(journal, Interruption(SimpleNamespace(), "killed", 2.0, (cut_off,)), cut_off)
    assert (continuation.byte, continuation.seconds, continuation.again.pid) == (400, 2.0, 11)
    assert went_on(journal[:5], Interruption(SimpleNamespace(), "killed", 2.0, (cut_off,)), cut_off).again is None


def test_a_world_passes_through_the_environment(monkeypatch):
    """A worker finds the folder and the pace that the demo has set."""
    world = World(Path("/tmp/caf\udce9"), 12.5)
    for name, value in world.environment().items():
        monkeypatch.setenv(name, value)
    assert World.of_environment() == world
