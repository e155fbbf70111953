"""copy_file found again by its reconciler and taken back by its undo, without harm to anybody."""

import logging
import os
import shutil

import pytest

from outlast.effect import Done, NotDone, Unsure
from outlast.effects import CopiedFile, copy_file
from outlast.effects.stage import Stage

from .files import attempt_of, content, copy, names, no_links, rewritten, sha256, stage_of

reconcile, undo = copy_file.reconciler.function, copy_file.undoer.function


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
    stage_of(3, target).write_bytes(b"in the making")
    reconcile(attempt_of(1), source, target)
    copy(source, target, 2)  # one that ends late looks for what is older only
    reconcile(attempt_of(2), source, target)
    assert names(target.parent) == sorted([stage_of(3, target).name, "film.mkv"])


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


def test_a_copy_is_known_by_its_mark(source, target, marks):
    """Published, its temporary name gone, and the result not recorded: the content is compared, the mark shows who made it, and undo removes it."""
    copied = copy(source, target)
    verdict = reconcile(attempt_of(), source, target)
    assert verdict == Done(copied)
    assert not verdict.result.was_there
    undo(attempt_of(), verdict.result, source, target)
    assert names(target.parent) == []


def test_a_copy_without_mark_is_done_and_left_by_undo(source, target, no_marks):
    """Where nothing can be marked nobody can show who made the copy: it is the result, and undo leaves it."""
    copy(source, target)
    verdict = reconcile(attempt_of(), source, target)
    assert verdict == Done(CopiedFile(target, len(content()), sha256(content()), was_there=True))
    undo(attempt_of(), verdict.result, source, target)
    assert target.read_bytes() == content()


def stood_there(source, target):
    target.write_bytes(content())


def stood_there_beside_a_stage(source, target):
    """The attempt had written, and had not published."""
    stage_of(1, target).write_bytes(content())
    target.write_bytes(content())


def made_by_another(source, target):
    copy_file(attempt_of(key="another"), source, target)


def exchanged_for_its_copy(source, target):
    """Programs that copy extended attributes copy the mark."""
    copy(source, target)
    shutil.copy2(target, target.with_name("x"))
    target.with_name("x").replace(target)


@pytest.mark.parametrize("put", [stood_there, stood_there_beside_a_stage, made_by_another, exchanged_for_its_copy])
def test_what_only_has_the_same_content_is_left_by_undo(source, target, put, caplog):
    """A killed attempt that did not make the target finds it done, says that nothing shows who made it, and undo never removes it."""
    put(source, target)
    with caplog.at_level(logging.WARNING):
        verdict = reconcile(attempt_of(), source, target)
    assert verdict == Done(CopiedFile(target, len(content()), sha256(content()), was_there=True))
    assert "nothing shows who put it there" in caplog.text
    undo(attempt_of(), verdict.result, source, target)
    assert target.read_bytes() == content()


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
