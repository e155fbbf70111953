"""copy_file: whole, durable and verified under the final name, or not there; found and taken back without harm to anybody."""

import errno
import logging
import os
import stat
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.outage.small_disk import SmallDisk

from outlast.effect import Done, NotDone, Unsure
from outlast.effects import CopiedFile, TargetExistsError, copy_file
from outlast.effects.stage import Stage
from outlast.errors import CancelRequested, FinalError

from .effect_files import CHUNK, At, Reports, attempt_of, content, names, sha256

reconcile, undo = copy_file.reconciler.function, copy_file.undoer.function


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "from" / "film.mkv"
    path.parent.mkdir()
    path.write_bytes(content())
    os.utime(path, ns=(1_000_000_000, 2_000_000_000))
    path.chmod(0o640)
    return path


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "to" / "film.mkv"
    path.parent.mkdir()
    return path


@pytest.fixture
def disk(tmp_path):
    """A file system of 4 MiB."""
    if os.geteuid():
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    with SmallDisk(folder, megabytes=4) as disk:
        yield disk


def copy(source, target, number=1, reports=None):
    return copy_file(attempt_of(number, reports=reports), source, target)


def stage_of(number, target):
    return Stage(attempt_of(number), target).path


def test_a_copy_is_whole_and_its_result_says_so(source, target):
    """Content, size, hash, permissions and times are the source's, and no temporary name is left."""
    copied = copy(source, target)
    assert copied == CopiedFile(target, len(content()), sha256(content()))
    assert target.read_bytes() == content()
    found = target.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (0o640, 2_000_000_000)
    assert names(target.parent) == ["film.mkv"]
    assert source.read_bytes() == content()


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK])
def test_sizes_around_a_chunk_are_copied(source, target, size):
    """Empty files, and files that end at a chunk or beside it, arrive whole."""
    source.write_bytes(content(size))
    assert copy(source, target).sha256 == sha256(content(size))
    assert target.read_bytes() == content(size)


def test_progress_is_told_in_bytes_and_ends_with_the_size(source, target):
    """Each chunk reports how many bytes of how many are done."""
    reports = Reports()
    copy(source, target, reports=reports)
    size = len(content())
    assert [each.done for each in reports if not each.note] == [0, CHUNK, 2 * CHUNK, 3 * CHUNK, size]
    assert {each.total for each in reports} == {size}


def test_permissions_beyond_the_ordinary_are_not_copied(source, target):
    """A set-user-id bit would give its powers to another owner."""
    source.chmod(0o4755)
    copy(source, target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o755


def test_a_file_that_only_its_group_may_read_is_read_back(source, target):
    """The copy is verified through what is open already, whatever the permissions that it was given."""
    source.chmod(0o040)
    copy(source, target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o040


def test_a_symbolic_link_is_followed(source, target):
    """What the link leads to is copied, not the link."""
    link = source.with_name("link")
    link.symlink_to("film.mkv")
    copy(link, target)
    assert target.read_bytes() == content()
    assert not target.is_symlink()


# --- refused ------------------------------------------------------------------------------------------------------------
def test_other_content_is_never_overwritten(source, target):
    """A target of somebody else's stays as it is, and the error says what to do."""
    target.write_bytes(b"precious")
    with pytest.raises(TargetExistsError, match="never overwritten: remove it, or choose another name"):
        copy(source, target)
    target.write_bytes(content()[:-1] + b"x")
    with pytest.raises(TargetExistsError):
        copy(source, target)
    assert target.read_bytes() == content()[:-1] + b"x"
    assert names(target.parent) == ["film.mkv"]


def test_a_link_under_the_final_name_is_not_followed(source, target):
    """A symbolic link is somebody's, even one that leads nowhere."""
    target.symlink_to("nowhere")
    with pytest.raises(TargetExistsError):
        copy(source, target)
    assert os.readlink(target) == "nowhere"


def test_the_same_content_is_the_result(source, target):
    """A target that is there with the same content is done, marked as not made here, and undo leaves it."""
    target.write_bytes(content())
    copied = copy(source, target)
    assert copied.was_there
    undo(attempt_of(), copied, source, target)
    assert target.read_bytes() == content()


def test_what_is_no_ordinary_file_is_refused(source, target, tmp_path):
    """Folders, pipes and devices are refused without waiting for them."""
    os.mkfifo(tmp_path / "pipe")
    for wrong, kind in ((tmp_path, "a folder"), (tmp_path / "pipe", "a device, pipe or socket")):
        with pytest.raises(FinalError, match=kind):
            copy(wrong, target)
    assert names(target.parent) == []


def test_one_file_under_two_names_is_refused(source, tmp_path):
    """A copy onto itself, by the same name, a hard link or a way around, would be taken back at the source's cost."""
    os.link(source, tmp_path / "twin")
    for same in (source, tmp_path / "from" / ".." / "from" / "film.mkv", tmp_path / "twin"):
        with pytest.raises(FinalError, match="are one file"):
            copy(source, same)
    assert source.read_bytes() == content()


@pytest.mark.parametrize("which", ["source", "target"])
def test_a_relative_path_is_refused(source, target, which, monkeypatch):
    """Another worker's current folder is another, so the reconciler would look in the wrong place."""
    paths = {"source": source, "target": target}
    monkeypatch.chdir(paths[which].parent)
    paths[which] = paths[which].relative_to(paths[which].parent)
    with pytest.raises(FinalError, match=f"{which} .* is relative"):
        copy_file(attempt_of(), **paths)
    verdict = reconcile(attempt_of(), **paths)
    assert isinstance(verdict, NotDone)
    assert verdict.revoked


def test_a_missing_source_or_folder_is_not_done(source, target):
    """Nothing was done, so the policy's attempts go on: the disk may come back."""
    with pytest.raises(NotDone) as missing:
        copy(source.with_name("none"), target)
    assert isinstance(missing.value.cause, FileNotFoundError)
    with pytest.raises(NotDone, match="create it, or mount its disk"):
        copy(source, target.parent / "none" / "film.mkv")


# --- names ------------------------------------------------------------------------------------------------------------------
@settings(max_examples=60)
@given(name=st.binary(min_size=1, max_size=255).filter(lambda name: not set(name) & {0, ord("/")} and name not in (b".", b"..")))
def test_any_name_that_a_file_can_have_is_copied(name, tmp_path_factory):
    """All bytes but two, UTF-8 or not, up to the longest name; paths and results survive storage too."""
    folder = tmp_path_factory.mktemp("names")
    for part in ("from", "to"):
        (folder / part).mkdir()
    source, target = folder / "from" / os.fsdecode(name), folder / "to" / os.fsdecode(name)
    source.write_bytes(name)
    signature = copy_file.step.signature
    arguments, _ = signature.decode_arguments(signature.encode_arguments((source, target), {}, "arguments"), "arguments")
    assert list(arguments) == [source, target]
    copied = copy(*arguments)
    assert signature.result.decode(signature.result.encode(copied, "result"), "result") == copied
    assert os.listdir(os.fsencode(target.parent)) == [name]
    assert target.read_bytes() == name
    assert reconcile(attempt_of(), source, target) == Done(copied)
    undo(attempt_of(), copied, source, target)
    assert os.listdir(target.parent) == []


# --- sources that change ------------------------------------------------------------------------------------------------------
def rewritten(source):
    with source.open("r+b") as file:
        file.write(b"changed")


def rewritten_with_its_time_set_back(source):
    found = source.stat()
    rewritten(source)
    os.utime(source, ns=(found.st_atime_ns, found.st_mtime_ns))


def exchanged(source):
    other = source.with_name("other")
    other.write_bytes(content())
    other.replace(source)


CHANGES = {
    "appended": lambda source: source.open("ab").write(b"more"),
    "truncated": lambda source: os.truncate(source, CHUNK // 2),
    "rewritten": rewritten,
    "rewritten with its time set back": rewritten_with_its_time_set_back,
    "exchanged": exchanged,
    "removed": os.unlink,
}


@pytest.mark.parametrize("point", ["source opened", "chunk written", "stage written"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.filterwarnings("ignore:unclosed file")
def test_a_source_that_changes_is_not_copied(source, target, monkeypatch, change, point):
    """Whatever happens to the source while it is copied, nothing comes under the final name and nothing is left."""
    At(monkeypatch, point, lambda: CHANGES[change](source))
    with pytest.raises(NotDone, match="changed while it was read"):
        copy(source, target)
    assert names(target.parent) == []


def test_a_source_that_grows_for_ever_ends_the_attempt(source, target, monkeypatch):
    """At most one chunk more than it had is read."""
    growing = At(monkeypatch, "chunk written", lambda: None)
    inner = growing._reached

    def grow(point):
        inner(point)
        with source.open("ab") as file:
            file.write(bytes(CHUNK))

    monkeypatch.setattr("outlast.effects.fault_points.reached", grow)
    with pytest.raises(NotDone, match="changed"):
        copy(source, target)
    assert growing.seen.count("chunk written") <= 5


# --- disks ------------------------------------------------------------------------------------------------------------------
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


# --- publishing where there are no hard links ------------------------------------------------------------------------------------
def no_links(*_, **__):
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


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


# --- reconcile --------------------------------------------------------------------------------------------------------------------
def test_an_attempt_that_never_wrote_is_barred(source, target):
    """It was frozen before it opened its temporary name: revoked, it cannot begin, and the next attempt removes the bar."""
    for _ in range(2):
        assert reconcile(attempt_of(), source, target).revoked
    assert names(target.parent) == [stage_of(1, target).name]
    with pytest.raises(NotDone, match="revoked before it began"):
        copy(source, target)
    assert names(target.parent) == []
    assert reconcile(attempt_of(), source, target).revoked
    copy(source, target, 2)
    assert names(target.parent) == ["film.mkv"]


def test_a_reconciler_touches_no_later_attempt(source, target):
    """One that was frozen, and is about the first attempt, leaves what the second is making."""
    stage_of(2, target).write_bytes(b"in the making")
    reconcile(attempt_of(1), source, target)
    assert stage_of(2, target).exists()


def test_another_operation_is_never_touched(source, target):
    """Two runs that copy into one folder do not see each other's temporary names."""
    other = Stage(attempt_of(1, key="another"), target).path
    other.write_bytes(b"in the making")
    copy(source, target, 3)
    assert other.exists()


def test_a_bar_that_cannot_be_set_is_not_called_a_revocation(source, target, monkeypatch):
    """On a disk that takes no name the verdict is one that is believed later only."""
    monkeypatch.setattr(os, "mkdir", no_links)
    verdict = reconcile(attempt_of(), source, target)
    assert isinstance(verdict, NotDone)
    assert not verdict.revoked


def test_a_copy_is_found_by_its_content(source, target):
    """Published, and its temporary name gone: the content is compared with the source's."""
    target.write_bytes(content())
    assert reconcile(attempt_of(), source, target) == Done(CopiedFile(target, len(content()), sha256(content())))


def test_a_copy_is_proven_by_its_temporary_name_without_its_source(source, target):
    """Both names lead to one file, so it is whole, and the source is not needed."""
    target.write_bytes(content())
    os.link(target, stage_of(1, target))
    source.unlink()
    assert reconcile(attempt_of(), source, target) == Done(CopiedFile(target, len(content()), sha256(content())))
    assert names(target.parent) == ["film.mkv"]


def test_without_source_and_proof_a_person_is_asked(source, target):
    """Nobody can compare the target with a source that is gone."""
    target.write_bytes(content())
    source.unlink()
    verdict = reconcile(attempt_of(), source, target)
    assert isinstance(verdict, Unsure)
    assert "is gone" in verdict.reason


def test_a_target_that_differs_is_unsure_unless_the_stage_tells(source, target):
    """It may be a copy of what the source was before; a temporary name that was never published proves that it is not."""
    target.write_bytes(b"other")
    assert isinstance(reconcile(attempt_of(), source, target), Unsure)
    stage_of(1, target).write_bytes(content())
    verdict = reconcile(attempt_of(), source, target)
    assert isinstance(verdict, NotDone)
    assert verdict.revoked
    assert names(target.parent) == ["film.mkv"]
    assert target.read_bytes() == b"other"


def test_a_missing_folder_is_unsure(source, target):
    """Its disk may come back with the copy on it."""
    target.parent.rmdir()
    verdict = reconcile(attempt_of(), source, target)
    assert isinstance(verdict, Unsure)
    assert "if its disk is mounted again" in verdict.reason


# --- undo ---------------------------------------------------------------------------------------------------------------------------
def test_undo_removes_the_copy_and_may_run_again(source, target):
    """What is gone already is no error, and neither is its folder."""
    copied = copy(source, target)
    for _ in range(2):
        undo(attempt_of(), copied, source, target)
        assert names(target.parent) == []
    target.parent.rmdir()
    undo(attempt_of(), copied, source, target)
    assert source.read_bytes() == content()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda source, target: target.write_bytes(b"edited"), "its size is 6"),
        (lambda source, target: rewritten(target), "its content is not what was put there"),
        (lambda source, target: source.unlink(), "it may be the last copy"),
        (lambda source, target: source.write_bytes(b"other"), "it may be the last copy"),
        (lambda source, target: (target.rename(target.with_name("x")), target.symlink_to("x")), "a symbolic link"),
    ],
)
def test_undo_leaves_what_it_has_no_right_to_remove(source, target, caplog, spoil, why):
    """Another content, the last copy, a link: it stays, and the log says so."""
    copied = copy(source, target)
    spoil(source, target)
    before = target.read_bytes()
    with caplog.at_level(logging.WARNING):
        undo(attempt_of(), copied, source, target)
    assert target.read_bytes() == before
    assert why in caplog.text
