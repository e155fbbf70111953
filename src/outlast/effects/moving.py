"""move_file: a file gets another name, on another file system too, and is whole under one of the two names at every moment.

Theory of operation. A move is a stage, its publication and the end of the old name, in this order. On one file system the
stage is a second name of the file itself, so that nothing is read; across file systems it is a copy. The stage's own name
is taken away last: as long as it leads to what has the final name, the attempt has published and may not have finished, and
whoever comes finishes. So a move that has published is carried on, never back.

1. The old name ends only when the final one is durable and leads to the same file, or to a copy verified against it.
2. It ends only while it leads to what was moved, and the attempt still has its permission. Between that last look and the
   removal there is no step of a file system that does both: a worker frozen within these microseconds is not stopped.
3. A reconciler never takes the last name away: it looks at the source before it takes a stage.
4. Where the source is gone, a file under the final name is the moved one only if something of the attempt's own shows that it
   was at work: its stage as that file's second name, the file's mark, or its permission, which it had got when the final name
   was free or led to the same content. Somebody else may have taken the source, and the target may be any file.

Where there are no hard links (or the file is protected from them) the file is renamed in one step, and its permission is an
empty stage that is looked at just before.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlast.effect import Attempt, Done, NotDone, Unsure, effect
from outlast.errors import FinalError, OutlastError
from outlast.limits import COPY_TIMEOUT
from outlast.retry import FILES

from . import fault_points, mark
from .copying import copy, publish
from .folder import NO_LINKS, NOTHING_GIVEN, find, is_one_name, is_plain, is_same, remove, rename_without_replacing, sync_folder
from .original import Original, ensure_paths, ticking
from .stage import Stage
from .standing import Standing, ensure_folder, find_same, make_durable, nothing_done, same_content, why_not_ours


@dataclass(frozen=True, slots=True)
class MovedFile:
    """A file under its new name."""

    path: Path
    size: int
    """In bytes."""
    sha256: str | None = None
    """Of its content, in hexadecimal; None when it stayed on its file system, where nobody has read it."""
    was_there: bool = False
    """The same content stood there before, so that only the old name was removed, or nobody can show any more that it did not;
    `undo` leaves it and gives the source back as a copy."""


@effect(retry=FILES, timeout=COPY_TIMEOUT, not_done=FinalError)
def move_file(attempt: Attempt[Any], source: Path, target: Path) -> MovedFile:
    """Move a file, so that at every moment it is whole under one of its names, whatever is killed when.

    Both paths are absolute, and the target's folder is there. On one file system it is renamed; across two it is copied like by
    `copy_file`, and the source removed afterwards. A target that is there with the same content ends the move with the removal of
    the source; one with other content is a `TargetExistsError`, and both stay. A symbolic link is refused: name what it leads to.
    """
    ensure_paths(source=source, target=target)
    ensure_folder(target)
    with nothing_done():
        _ensure_removable(source)
        opened = None if find(source) is None else Original(source)
    if opened is None:
        if attempt.number > 1 and find(target) is not None:
            raise OutlastError(f"{str(source)!r} is gone and {str(target)!r} is there: an earlier attempt ended late")  # its reconciler says done
        raise NotDone(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source)))
    with opened as original, Stage(attempt, target) as stage:
        fault_points.reached("source opened")
        return move(attempt, original, stage)


def _ensure_removable(source: Path) -> None:
    if source.parent.exists() and not os.access(source.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no file can be removed from the source's folder", str(source.parent))


def move(attempt: Attempt[Any], original: Original, stage: Stage) -> MovedFile:
    """Move an open file to the stage's target. `NotDone` when it is certain that nothing was; after any other error it may have been."""
    target = stage.target
    there = _find_there(attempt, original, target)
    if there is not None:
        stage.open()  # empty: the permission alone
        _remove_source(attempt, original, stage, there.stat, is_other_file=not is_same(there.stat, original.stat))
        digest = there.sha256
    else:
        stage.sweep()
        digest = _give_name(attempt, original, stage)
    stage.discard()
    stage.sweep(bars=True)
    return MovedFile(target, original.size, digest, was_there=there is not None)


def _find_there(attempt: Attempt[Any], original: Original, target: Path) -> Standing | None:
    with nothing_done():
        found = find(target)
        if found is None or not is_same(found, original.stat):
            return find_same(attempt, original, target)
        if found.st_nlink < 2 or is_one_name(original.path, target):
            raise FinalError(f"{str(original.path)!r} and {str(target)!r} are one file: choose another target")
        sync_folder(target.parent)
    return Standing(found, None)


def _give_name(attempt: Attempt[Any], original: Original, stage: Stage) -> str | None:
    """Move by a second name, else by renaming, else by a copy, and return the copy's SHA-256."""
    digest: str | None = None
    try:
        stage.link(original)
        mark.put(original.descriptor, stage.operation)
    except OSError as error:
        if error.errno != errno.EXDEV and error.errno not in NO_LINKS:
            raise NotDone(error) from error
        stage.open()
        if error.errno != errno.EXDEV and _rename(attempt, original, stage):
            return None
        digest = stage.fill(attempt, original)
    else:
        os.fsync(original.descriptor)
    attempt.raise_if_canceled()
    publish(stage)
    stage.keep_permission()
    _remove_source(attempt, original, stage, stage.stat, is_other_file=digest is not None)
    return digest


def _rename(attempt: Attempt[Any], original: Original, stage: Stage) -> bool:
    """Rename in one step; False when the file system says that it is none of its own."""
    if stage.stat is not None and stage.stat.st_dev == original.stat.st_dev:  # marked in vain, it would have changed
        mark.put(original.descriptor, stage.operation)
    os.fsync(original.descriptor)
    attempt.raise_if_canceled()
    try:
        stage.ensure_permitted()
        rename_without_replacing(original.path, stage.target)
    except OSError as error:
        if error.errno == errno.EXDEV:
            return False
        if error.errno not in NOTHING_GIVEN:
            raise
        stage.discard()
        raise NotDone(error) from error
    fault_points.reached("published")
    sync_folder(stage.target.parent)
    fault_points.reached("folder synced")
    sync_folder(original.path.parent)
    return True


def _remove_source(attempt: Attempt[Any], original: Original, stage: Stage, there: os.stat_result | None, *, is_other_file: bool) -> None:
    """Let the old name end, if the final one leads to `there` and everything is as it was. Whatever is raised, the source may be there."""
    sync_folder(stage.target.parent)
    fault_points.reached("folder synced")
    fault_points.reached("source leaves")
    attempt.raise_if_canceled()
    stage.ensure_permitted()
    if not is_same(find(stage.target), there):
        raise FileNotFoundError(errno.ENOENT, "the moved file was removed or exchanged, so its source stays", str(stage.target))
    if not (original.is_unchanged() if is_other_file else original.is_in_place()):
        raise OutlastError(f"{str(original.path)!r} changed after it was copied, and stays; {str(stage.target)!r} has what it was before")
    remove(os.unlink, original.path)
    sync_folder(original.path.parent)
    fault_points.reached("source removed")


@move_file.reconcile
def find_move(attempt: Attempt[Any], source: Path, target: Path) -> Done[MovedFile] | NotDone | Unsure:
    """Find out whether an attempt has published, and finish it then; else see to it that it does not do so any more.

    The attempt's worker may be frozen anywhere. What it has published has two names, the final one and the stage's, until it is
    finished; taking the stage away before that denies it the publication, and afterwards the removal of the source. Where the
    source is gone and the target is there, the move is done if the target has its mark or the permission is still there. Else
    somebody else may have taken the source: there, and where nobody can see which file is the last one, a person is asked.
    """
    try:
        ensure_paths(source=source, target=target)
    except FinalError as error:
        return NotDone(error, revoked=True)
    for folder in (source.parent, target.parent):
        if not os.path.isdir(folder):
            return Unsure(f"the folder {str(folder)!r} is not there: if its disk is mounted again, the file may be on it")
    stage = Stage(attempt, target)
    made, found = stage.see(), find(target)
    if is_same(found, made):
        return _finish(attempt, source, stage)
    if find(source) is None:
        return _without_source(attempt, source, stage, made)
    revocation = stage.revoke()
    fault_points.reached("attempt revoked")
    if is_same(find(target), revocation.made):
        return _finish(attempt, source, stage)
    if find(source) is None:
        return _without_source(attempt, source, stage, revocation.made)
    return NotDone("the source is there, and nothing that this attempt has made has the target's name", revoked=revocation.is_certain)


def _finish(attempt: Attempt[Any], source: Path, stage: Stage, *, was_there: bool = False) -> Done[MovedFile] | Unsure:
    """Let the old name of a published file end; `was_there` when nothing shows that this operation has published it."""
    digest = None
    with Original(stage.target) as moved:
        make_durable(moved)
        if find(source) is not None:
            try:
                with Original(source) as original:
                    if not is_same(original.stat, moved.stat):
                        digest = same_content(attempt, original, moved)
                        if digest is None:
                            return Unsure(f"{str(source)!r} changed after it was copied; {str(stage.target)!r} has what it was before, and both are left")
                    remove(os.unlink, source)
            except (FinalError, PermissionError) as error:
                return Unsure(f"{str(stage.target)!r} is there, but its source cannot be removed: {error}")
        elif not _is_on_one_file_system(source, moved):
            digest = moved.hash(ticking(attempt, moved.size, "hashing"))
        sync_folder(source.parent)
        fault_points.reached("source removed")
        stage.take_away()
        stage.sweep(bars=True)
        return Done(MovedFile(stage.target, moved.size, digest, was_there=was_there))


def _without_source(attempt: Attempt[Any], source: Path, stage: Stage, made: os.stat_result | None) -> Done[MovedFile] | Unsure:
    """Tell whether the target is the moved file. `made` is what stood under the stage's name: empty, it is the permission."""
    there = f"the source {str(source)!r} is gone"
    if made is not None and made.st_size and stage.see() is not None:
        return Unsure(f"{there}, and {str(stage.path)!r}, which was never published, may be its last copy")
    if not is_plain(find(stage.target)):
        return Unsure(f"{there}, and the target {str(stage.target)!r} is not there as a file either")
    with Original(stage.target) as moved:
        is_marked = mark.is_put(moved.descriptor, stage.operation)
    if is_marked or (made is not None and not made.st_size):
        return _finish(attempt, source, stage, was_there=not is_marked)
    return Unsure(
        f"{there}, and nothing shows that this attempt has moved it: see whether {str(stage.target)!r} is that file, or somebody else has taken the source away"
    )


def _is_on_one_file_system(source: Path, moved: Original) -> bool:
    return os.stat(source.parent).st_dev == moved.stat.st_dev


@move_file.undo
def move_back(attempt: Attempt[Any], result: MovedFile, source: Path, target: Path) -> None:
    """Move the file back. What is not what was moved stays, with a warning, and nothing that has the source's name is overwritten."""
    if not is_plain(find(target)):
        if find(source) is None:
            attempt.log.warning("%r cannot be moved back: it is not there, and neither is %r", str(target), str(source))
        return
    with Original(target) as moved, Stage(attempt, source, is_undo=True) as stage:
        reason = why_not_ours(attempt, moved, result.size, result.sha256)
        if reason is not None:
            attempt.log.warning("%r is left where it is: %s", str(target), reason)
        elif not result.was_there:
            move(attempt, moved, stage)
        elif find_same(attempt, moved, source) is None:
            copy(attempt, moved, stage)
