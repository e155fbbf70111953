"""copy_file on disks that are full, vanish, fail or have no hard links, and when it is canceled: nothing partial, and nothing left."""

import errno
import os
import stat
import subprocess

import pytest

from outlast.effect import Done, NotDone
from outlast.effects import CopiedFile, TargetExistsError, copy_file
from outlast.errors import CancelRequested

from .files import CHUNK, At, Reports, attempt_of, content, copy, names, no_links, sha256, stage_of

reconcile, undo = copy_file.reconciler.function, copy_file.undoer.function


def test_a_full_disk_leaves_nothing(source, disk):
    """On a disk that fills up in the middle the temporary file goes away, and with room again the next attempt succeeds."""
    target = disk.folder / "film.mkv"
    disk.fill(but=2 * CHUNK)
    with pytest.raises(NotDone) as full:
        copy(source, target)
    assert full.value.cause.errno == errno.ENOSPC
    assert names(disk.folder) == ["ballast"]
    disk.free()
    assert copy(source, target, 2).sha256 == sha256(content())
    assert names(disk.folder) == ["film.mkv"]


def test_what_an_earlier_attempt_left_makes_room(source, disk):
    """A killed attempt's temporary file is removed before the next one writes, else it would have no room."""
    target = disk.folder / "film.mkv"
    stage_of(1, target).write_bytes(content())
    assert copy(source, target, 2).size == len(content())
    assert names(disk.folder) == ["film.mkv"]


def test_a_copy_across_file_systems_is_whole(source, disk):
    """The temporary name is on the target's file system, so that publishing is one step there."""
    target = disk.folder / "film.mkv"
    copy(source, target)
    assert target.read_bytes() == content()
    assert os.stat(target).st_dev != os.stat(source).st_dev


def test_a_disk_unmounted_in_the_middle_is_not_done(source, disk, monkeypatch):
    """The final name is not given in the folder that appears in its place; mounted again, the next attempt cleans up and copies."""
    target = disk.folder / "film.mkv"
    At(monkeypatch, "chunk written", lambda: subprocess.run(["umount", "--lazy", str(disk.folder)], check=True), count=2)
    with pytest.raises(NotDone) as gone:
        copy(source, target)
    assert isinstance(gone.value.cause, FileNotFoundError)
    assert names(disk.folder) == []
    with disk:  # the fixture unmounts one more
        assert copy(source, target, 2).sha256 == sha256(content())
    subprocess.run(["mount", "-t", "tmpfs", "outage", str(disk.folder)], check=True)


@pytest.mark.parametrize("point", ["stage opened", "chunk written", "stage finished"])
def test_a_folder_removed_in_the_middle_is_not_done(source, target, monkeypatch, point):
    """Removed, the folder has no final name to give; it is not created again."""

    def remove():
        for name in names(target.parent):
            (target.parent / name).unlink()
        target.parent.rmdir()

    At(monkeypatch, point, remove)
    with pytest.raises(NotDone) as gone:
        copy(source, target)
    assert isinstance(gone.value.cause, FileNotFoundError)
    assert not target.parent.exists()


@pytest.mark.parametrize("call", ["fsync", "write", "pread"])
def test_an_error_of_the_disk_leaves_nothing(source, target, monkeypatch, call):
    """A write, a sync or a read that fails once ends the attempt, and what it had made is not trusted again."""

    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(NotDone) as failed:
        copy(source, target)
    assert failed.value.cause.errno == errno.EIO
    assert names(target.parent) == []


def test_what_reads_back_differently_is_not_published(source, target, monkeypatch):
    """A disk that loses a byte after the sync is found out before the final name is given."""

    def damage():
        with stage_of(1, target).open("r+b") as file:
            file.seek(CHUNK)
            file.write(b"\0\0\0\0")

    At(monkeypatch, "stage synced", damage)
    with pytest.raises(NotDone, match="reads differently"):
        copy(source, target)
    assert names(target.parent) == []


def test_a_folder_that_is_not_durable_leaves_the_outcome_open(source, target, monkeypatch):
    """The name is given and its sync fails: nobody says "not done", and the reconciler finds the copy once it can be synced."""
    sync, calls = os.fsync, []

    def fail_at_folders(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) and not calls:
            calls.append(descriptor)
            raise OSError(errno.EIO, "lost")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_at_folders)
    with pytest.raises(OSError, match="lost"):
        copy(source, target)
    assert reconcile(attempt_of(), source, target) == Done(CopiedFile(target, len(content()), sha256(content())))
    assert names(target.parent) == ["film.mkv"]


@pytest.fixture(params=["links", "renames in one step", "renames after a look"])
def publishing(request, monkeypatch):
    """Each of the three ways to give a final name without replacing one."""
    if request.param != "links":
        monkeypatch.setattr(os, "link", no_links)
    if request.param == "renames after a look":
        monkeypatch.setattr("outlast.effects.folder._rename_in_one_step", lambda old, new: errno.EINVAL)
    return request.param


def test_every_way_to_publish_gives_a_whole_copy(source, target, publishing):
    """With or without hard links the copy is there, alone, and can be taken back."""
    copied = copy(source, target)
    assert target.read_bytes() == content()
    assert names(target.parent) == ["film.mkv"]
    undo(attempt_of(), copied, source, target)
    assert names(target.parent) == []


def test_no_way_to_publish_replaces_a_file(source, target, publishing, monkeypatch):
    """A file that appears under the final name while the copy is made stays, and nothing else does."""
    At(monkeypatch, "stage finished", lambda: target.write_bytes(b"precious"))
    with pytest.raises(NotDone):
        copy(source, target)
    assert target.read_bytes() == b"precious"
    assert names(target.parent) == ["film.mkv"]
    with pytest.raises(TargetExistsError):
        copy(source, target, 2)


def test_no_way_to_publish_works_after_a_revocation(source, target, publishing, monkeypatch):
    """The reconciler comes between the last look and the publication: nothing comes under the final name, then or later."""
    verdicts = []

    def doubt():
        for _ in range(2):  # a second reconciler bars what the first one has taken away
            verdicts.append(reconcile(attempt_of(), source, target))

    At(monkeypatch, "stage finished", doubt)
    with pytest.raises(NotDone):
        copy(source, target)
    assert [verdict.revoked for verdict in verdicts] == [True, True]
    assert names(target.parent) == []


# --- cancel ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("count", [1, 3])
def test_a_cancel_ends_the_copy_at_the_next_chunk(source, target, monkeypatch, count):
    """The exception passes, the room is given back at once, and the reconciler leaves nothing."""
    reports = Reports()
    attempt = attempt_of(reports=reports)
    at = At(monkeypatch, "chunk written", lambda: reports.step.tell("no"), count)
    with pytest.raises(CancelRequested):
        copy_file(attempt, source, target)
    assert at.seen.count("chunk written") == count
    assert [path.stat().st_size for path in target.parent.iterdir()] == [0]
    assert reconcile(attempt_of(), source, target).revoked
    assert names(target.parent) == []
