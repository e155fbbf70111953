"""move_file on one file system: the file itself is renamed; names that are one, folders that are gone, the last name, undo."""

import errno
import logging
import os

import pytest

from outlast.effect import Done, NotDone, Unsure
from outlast.effects import MovedFile, TargetExistsError, move_file
from outlast.effects.stage import Stage
from outlast.errors import FinalError

from .files import At, attempt_of, content
from .place import SIZE, Place


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


@pytest.mark.parametrize("is_barred", [False, True])
def test_another_file_under_the_final_name_is_not_taken_for_the_moved_one(near, tmp_path, is_barred):
    """Killed before it did anything, and somebody else took the source: a person is asked, not told "done" with a wrong file."""
    near.target.write_bytes(b"something else, older")
    if is_barred:
        assert near.reconcile().revoked
    near.source.rename(tmp_path / "elsewhere")
    verdict = near.reconcile()
    assert isinstance(verdict, Unsure)
    assert "somebody else has taken the source" in verdict.reason
    assert near.target.read_bytes() == b"something else, older"


def test_the_mark_of_another_move_is_not_taken_for_ones_own(near, tmp_path):
    """Another run moved another file to the same final name: its mark shows nothing for this one."""
    other = tmp_path / "other"
    other.write_bytes(b"another film")
    move_file(attempt_of(key="another"), other, near.target)
    near.source.unlink()
    assert isinstance(near.reconcile(), Unsure)
    assert near.target.read_bytes() == b"another film"


def test_a_source_taken_while_its_stage_is_taken_away_is_for_a_person(near, monkeypatch):
    """Both go in one moment, and another file has the final name: nobody says that it is the moved one."""
    os.link(near.source, near.stage())
    near.target.write_bytes(b"another film")
    At(monkeypatch, "attempt revoked", near.source.unlink)
    assert isinstance(near.reconcile(), Unsure)
    assert near.target.read_bytes() == b"another film"


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
