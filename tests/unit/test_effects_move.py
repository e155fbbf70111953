"""move_file: whole under one of its names at every moment, finished by whoever comes, taken back without harm to anybody."""

import errno
import logging
import os

import pytest
from tests.outage.small_disk import SmallDisk

from outlast.effect import Done, NotDone, Unsure
from outlast.effects import MovedFile, TargetExistsError, move_file
from outlast.effects.stage import Stage
from outlast.errors import CancelRequested, FinalError, OutlastError

from .effect_files import CHUNK, At, Reports, attempt_of, content, names, sha256

reconcile, undo = move_file.reconciler.function, move_file.undoer.function
SIZE = len(content())
HASH = sha256(content())


def unlinkable(*_, **__):
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def parted(*_, **__):
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


class Place:
    """A source, a target, and how a file gets from one to the other."""

    def __init__(self, way, source, target):
        self.way, self.source, self.target = way, source, target
        self.is_copied = way.startswith("copied")

    @property
    def last_point(self):
        """The last one before the old name ends; a rename ends it in the same step."""
        return "published" if self.way.startswith("renamed") else "source leaves"

    def move(self, number=1, reports=None):
        return move_file(attempt_of(number, reports=reports), self.source, self.target)

    def reconcile(self, number=1):
        return reconcile(attempt_of(number), self.source, self.target)

    def undo(self, result):
        undo(attempt_of(), result, self.source, self.target)

    def stage(self, number=1):
        return Stage(attempt_of(number), self.target).path

    def content_anywhere(self):
        """Return whether some name of the two still leads to the whole content."""
        return any(path.exists() and path.read_bytes() == content() for path in (self.source, self.target))

    def assert_moved(self):
        assert self.target.read_bytes() == content()
        assert names(self.target.parent) == ["new.mkv"]
        assert names(self.source.parent) == []

    def assert_at_source(self):
        assert self.source.read_bytes() == content()
        assert names(self.target.parent) == []
        assert names(self.source.parent) == ["film.mkv"]

    @property
    def result(self):
        return MovedFile(self.target, SIZE, HASH if self.is_copied else None)


WAYS = ["linked", "renamed", "renamed after a look", "copied", "copied without links"]


@pytest.fixture(params=WAYS)
def place(request, tmp_path, monkeypatch):
    """Each of the ways a file goes: on one file system with and without hard links, and to another with and without."""
    way = request.param
    source, folder = tmp_path / "from" / "film.mkv", tmp_path / "to"
    source.parent.mkdir()
    folder.mkdir()
    source.write_bytes(content())
    if "renamed" in way or "without" in way:
        monkeypatch.setattr(os, "link", unlinkable)
    if way == "renamed after a look":
        monkeypatch.setattr("outlast.effects.folder._rename_in_one_step", lambda old, new: errno.ENOSYS)
    if not way.startswith("copied"):
        yield Place(way, source, folder / "new.mkv")
    elif os.geteuid():
        pytest.skip("only root can mount a small file system")
    else:
        with SmallDisk(folder, megabytes=8):
            yield Place(way, source, folder / "new.mkv")


def test_a_file_is_moved(place):
    """It is whole under its new name, alone, and its source is gone; its hash is known where it was read."""
    if place.way == "copied without links":  # that way is taken where the rename itself says that it crosses file systems
        assert place.move().sha256 == HASH
    else:
        assert place.move() == place.result
    place.assert_moved()


def test_it_is_moved_back_and_undo_may_run_again(place):
    """Undo gives the old name back, whatever lies between, and does nothing the second time."""
    moved = place.move()
    for _ in range(2):
        place.undo(moved)
        place.assert_at_source()


def test_other_content_is_never_overwritten(place):
    """A target of somebody else's stays, the source too, and the error says what to do."""
    place.target.write_bytes(b"precious")
    with pytest.raises(TargetExistsError):
        place.move()
    assert place.target.read_bytes() == b"precious"
    assert place.source.read_bytes() == content()


def test_a_file_that_appears_is_not_replaced(place, monkeypatch):
    """Whoever takes the final name while the move is made ready keeps it, and the source stays."""
    point = "stage finished" if place.is_copied else "stage opened"
    At(monkeypatch, point, lambda: place.target.write_bytes(b"precious"))
    with pytest.raises(NotDone):
        place.move()
    assert place.target.read_bytes() == b"precious"
    assert names(place.target.parent) == ["new.mkv"]
    assert place.source.read_bytes() == content()


def test_the_same_content_ends_the_move(place):
    """A target that is there with the same content needs no move; undo leaves it and gives the source back."""
    place.target.write_bytes(content())
    moved = place.move()
    assert moved == MovedFile(place.target, SIZE, HASH, was_there=True)
    place.assert_moved()
    place.undo(moved)
    assert place.source.read_bytes() == place.target.read_bytes() == content()


def test_a_missing_source_is_not_done(place):
    """Nothing was there to be moved; in a later attempt, with a target, its reconciler is asked."""
    place.source.unlink()
    with pytest.raises(NotDone):
        place.move()
    with pytest.raises(NotDone):
        place.move(2)
    place.target.write_bytes(content())
    with pytest.raises(OutlastError, match="an earlier attempt ended late") as late:
        place.move(2)
    assert not isinstance(late.value, NotDone)
    assert isinstance(place.reconcile(2), Done)


def test_a_cancel_leaves_the_source(place, monkeypatch):
    """Told before the final name is given, the move ends, and the reconciler leaves only the source."""
    reports = Reports()
    attempt = attempt_of(reports=reports)
    At(monkeypatch, "stage opened", lambda: reports.step.tell("no"))
    with pytest.raises(CancelRequested):
        move_file(attempt, place.source, place.target)
    assert place.reconcile().revoked
    place.assert_at_source()


@pytest.mark.parametrize("reconcilers", [1, 2])
def test_a_revoked_move_changes_nothing(place, monkeypatch, reconcilers):
    """The reconciler comes when all is ready: the final name is not given, and the source stays."""
    verdicts = []
    point = "stage finished" if place.is_copied else "stage opened"
    At(monkeypatch, point, lambda: verdicts.extend(place.reconcile() for _ in range(reconcilers)))
    with pytest.raises(NotDone):
        place.move()
    assert [verdict.revoked for verdict in verdicts] == [True] * reconcilers
    place.assert_at_source()


def test_a_move_that_never_began_is_barred(place):
    """Frozen before it made its temporary name it cannot begin any more; the next attempt removes the bar."""
    assert place.reconcile().revoked
    with pytest.raises(NotDone):
        place.move()
    assert place.reconcile().revoked
    place.move(2)
    place.assert_moved()


@pytest.mark.parametrize("point", ["published", "folder synced", "last"])
def test_whoever_comes_finishes_what_was_published(place, monkeypatch, point):
    """A reconciler in the middle leads to one whole file; what the attempt does afterwards changes nothing."""
    verdicts = []
    At(monkeypatch, place.last_point if point == "last" else point, lambda: verdicts.append(place.reconcile()))
    try:
        place.move()
    except (NotDone, OSError, OutlastError):
        pass  # it found out that somebody else had acted
    assert place.content_anywhere()
    if isinstance(verdicts[0], NotDone):  # without hard links, a copy: the permission was taken away, and another attempt goes on
        place.move(2)
    else:
        assert (verdicts[0].result.path, verdicts[0].result.size) == (place.target, SIZE)
    place.assert_moved()


@pytest.mark.parametrize("replacement", [b"a new download", content()])
def test_a_new_file_under_the_old_name_stays(place, monkeypatch, replacement):
    """A worker that was frozen before it removes the source finds another file there, and leaves it."""

    def finished_by_another_and_replaced():
        reconcile(attempt_of(), place.source, place.target)
        place.source.unlink(missing_ok=True)
        place.source.write_bytes(replacement)

    At(monkeypatch, place.last_point, finished_by_another_and_replaced)
    try:
        place.move()
    except (OSError, OutlastError):
        pass
    assert place.source.read_bytes() == replacement
    assert place.target.read_bytes() == content()


def test_a_move_that_was_taken_back_meanwhile_loses_nothing(place, monkeypatch):
    """Another finishes the move and takes it back while this worker is frozen before it removes the source: the file stays."""

    def finished_and_taken_back():
        verdict = place.reconcile()
        if isinstance(verdict, Done):
            place.undo(verdict.result)

    At(monkeypatch, place.last_point, finished_and_taken_back)
    try:
        place.move()
    except (OSError, OutlastError):
        pass
    assert place.source.read_bytes() == content()


def test_a_target_removed_before_the_source_keeps_the_source(place, monkeypatch):
    """The last look sees that the final name leads nowhere, so the source is not removed."""
    if place.way.startswith("renamed"):
        pytest.skip("capability: a rename has no moment between")
    At(monkeypatch, place.last_point, place.target.unlink)
    with pytest.raises(OSError, match="its source stays"):
        place.move()
    assert place.source.read_bytes() == content()


def test_a_source_written_to_after_it_was_copied_stays(place, monkeypatch):
    """Across file systems the copy has what was there before; both stay, and a person is asked."""
    if not place.is_copied:
        pytest.skip("capability: on one file system it is one file")

    def write():
        with place.source.open("ab") as file:
            file.write(b"more")

    At(monkeypatch, "published", write)
    with pytest.raises(OutlastError, match="changed after it was copied"):
        place.move()
    assert place.target.read_bytes() == content()
    assert place.source.read_bytes() == content() + b"more"
    if place.way == "copied":
        assert isinstance(place.reconcile(), Unsure)


def test_a_full_disk_leaves_the_source(place, monkeypatch):
    """What does not fit is not moved, and nothing is left on the disk."""
    if not place.is_copied:
        pytest.skip("capability: on one file system nothing is written")
    ballast = place.target.with_name("ballast")
    ballast.write_bytes(bytes(6 * CHUNK))
    with pytest.raises(NotDone) as full:
        place.move()
    assert full.value.cause.errno == errno.ENOSPC
    ballast.unlink()
    place.assert_at_source()


# --- on one file system ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def near(tmp_path):
    """A source and a target in one folder each, on one file system."""
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    source = tmp_path / "from" / "film.mkv"
    source.write_bytes(content())
    return Place("linked", source, tmp_path / "to" / "new.mkv")


def test_a_rename_keeps_the_file_itself(near):
    """On one file system nothing is read and nothing copied: it is the same file."""
    before = near.source.stat()
    near.move()
    assert os.path.samestat(near.target.stat(), before)


def test_what_is_no_ordinary_file_is_refused(near, tmp_path):
    """A symbolic link would lead elsewhere from its new place, a folder is no file."""
    link = tmp_path / "link"
    link.symlink_to(near.source)
    for wrong in (link, tmp_path):
        with pytest.raises(FinalError, match="name an ordinary file"):
            move_file(attempt_of(), wrong, near.target)
    near.assert_at_source()


def test_one_name_spelled_twice_is_refused(near, tmp_path):
    """Removing the old name would remove the new one: it is the same entry of the same folder."""
    (tmp_path / "around").symlink_to("from")
    for same in (near.source, tmp_path / "from" / ".." / "from" / "film.mkv", tmp_path / "around" / "film.mkv"):
        with pytest.raises(FinalError, match="are one file"):
            move_file(attempt_of(), near.source, same)
    near.assert_at_source()


def test_names_that_a_file_system_may_hold_for_one_are_refused(near):
    """Two hard links in one folder whose names differ in case only are taken for one name, because on some file systems they are."""
    twin = near.source.with_name("FILM.mkv")
    os.link(near.source, twin)
    with pytest.raises(FinalError, match="are one file"):
        move_file(attempt_of(), near.source, twin)
    assert near.source.read_bytes() == content()


def test_a_hard_link_ends_the_move(near):
    """The file has the final name already, so that only the old one ends; undo gives it back and leaves the final one."""
    os.link(near.source, near.target)
    moved = near.move()
    assert moved == MovedFile(near.target, SIZE, None, was_there=True)
    near.assert_moved()
    near.undo(moved)
    assert near.source.read_bytes() == near.target.read_bytes() == content()


def test_a_folder_that_lets_nothing_go_is_seen_before(near, monkeypatch):
    """Where the source could not be removed nothing is begun."""
    monkeypatch.setattr(os, "access", lambda path, mode: path != near.source.parent)
    with pytest.raises(NotDone) as refused:
        near.move()
    assert isinstance(refused.value.cause, PermissionError)
    near.assert_at_source()


def test_a_source_that_cannot_be_removed_is_for_a_person(near, monkeypatch):
    """The final name is given and the old one stays: nobody says that it was done, and nothing is lost."""
    unlink = os.unlink

    def refuse(path, **options):
        if path == near.source:
            raise PermissionError(errno.EPERM, "sticky")
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(PermissionError):
        near.move()
    verdict = near.reconcile()
    assert isinstance(verdict, Unsure)
    assert "its source cannot be removed" in verdict.reason
    monkeypatch.setattr(os, "unlink", unlink)
    assert near.reconcile() == Done(near.result)
    near.assert_moved()


def test_the_last_name_is_never_taken_away(near):
    """The source was removed by somebody while an unpublished second name was there: it stays, and a person is told where it is."""
    os.link(near.source, near.stage())
    near.source.unlink()
    verdict = near.reconcile()
    assert isinstance(verdict, Unsure)
    assert str(near.stage()) in verdict.reason
    assert near.stage().read_bytes() == content()


def test_neither_file_is_unsure(near):
    """With neither source nor target nobody can tell."""
    near.source.unlink()
    assert isinstance(near.reconcile(), Unsure)


@pytest.mark.parametrize("which", ["source", "target"])
def test_a_missing_folder_is_unsure(near, which):
    """A source that is gone with its disk was not moved; a target that is gone with its disk may have been."""
    near.target.write_bytes(content())
    path = getattr(near, which)
    path.unlink()
    path.parent.rmdir()
    verdict = near.reconcile()
    assert isinstance(verdict, Unsure)
    assert str(path.parent) in verdict.reason


def test_a_finished_move_is_found(near):
    """Source gone, target there: done, with what is left of the attempt removed."""
    near.target.write_bytes(content())
    near.source.unlink()
    assert near.reconcile() == Done(near.result)


def test_undo_leaves_what_is_not_what_was_moved(near, caplog):
    """Another content under the final name stays, with a warning; nothing is put under the old name."""
    moved = near.move()
    near.target.write_bytes(b"edited")
    with caplog.at_level(logging.WARNING):
        near.undo(moved)
    assert near.target.read_bytes() == b"edited"
    assert not near.source.exists()
    assert "its size is 6" in caplog.text


def test_undo_overwrites_nothing(near):
    """A new file under the old name stays, and the undo fails, so that a person sees it."""
    moved = near.move()
    near.source.write_bytes(b"new")
    with pytest.raises(TargetExistsError):
        near.undo(moved)
    assert near.source.read_bytes() == b"new"
    assert near.target.read_bytes() == content()


def test_an_undo_cut_off_is_finished_by_the_next(near):
    """Killed between its steps it leaves a name of its own behind; the next run of it moves the file back and cleans up."""
    moved = near.move()
    leftover = Stage(attempt_of(), near.source, is_undo=True).path
    os.link(near.target, leftover)
    os.link(near.target, near.source)
    near.undo(moved)
    near.assert_at_source()
