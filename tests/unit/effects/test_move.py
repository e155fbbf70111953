"""move_file, whichever way a file goes: whole under one of its names, finished by whoever comes, taken back without harm."""

import errno
import os
import shutil

import pytest
from tests.outage.small_disk import SmallDisk

from outlast.effect import Done, NotDone, Unsure
from outlast.effects import MovedFile, TargetExistsError, move_file
from outlast.errors import CancelRequested, OutlastError

from .files import CHUNK, At, Reports, attempt_of, content, names, no_links
from .place import HASH, SIZE, Place, reconcile

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
        monkeypatch.setattr(os, "link", no_links)
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
    assert isinstance(place.reconcile(2), Unsure)


def test_a_finished_move_is_found_by_its_mark(place, marks):
    """All was done but recorded: the mark shows that the target is the moved file, whichever way it went, and undo gives it back."""
    place.move()
    for number in (1, 2):  # any attempt of the operation
        verdict = place.reconcile(number)
        assert isinstance(verdict, Done)
        assert (verdict.result.size, verdict.result.was_there) == (SIZE, False)
        place.assert_moved()
    place.undo(verdict.result)
    place.assert_at_source()


def test_a_finished_move_without_mark_is_for_a_person(place, no_marks):
    """Where nothing can be marked, and the temporary name is gone, nobody can show that the target is the moved file."""
    place.move()
    verdict = place.reconcile()
    assert isinstance(verdict, Unsure)
    assert "nothing shows that this attempt has moved it" in verdict.reason
    place.assert_moved()


def test_a_permission_shows_the_move_and_not_who_put_the_file_there(place, no_marks):
    """Killed after the source went: done by the permission that is left, and undo gives the source back without removing the target."""
    place.source.rename(place.target) if not place.is_copied else shutil.move(place.source, place.target)
    place.stage().touch()
    verdict = place.reconcile()
    assert isinstance(verdict, Done)
    assert verdict.result.was_there
    place.assert_moved()
    place.undo(verdict.result)
    assert place.source.read_bytes() == place.target.read_bytes() == content()


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
