"""copy_file: a copy that is whole, durable and verified under its final name, or not there at all; and how it is found and taken back.

1. What has the final name is whole: `Stage` says how. Nothing that stands there is ever overwritten.
2. "Not done" is said only of an attempt that cannot publish any more, and has not.
3. A copy is taken back only while it is what was made, its source is still there, and it is shown that it was made here:
   what has equal content only may be somebody else's, who put it there before.

It follows a source that is a symbolic link. Permissions and times are kept; owner, extended attributes and holes are not.
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
from .folder import find, is_plain, is_same, sync_folder
from .original import Original, ensure_paths, ticking
from .stage import Revocation, Stage
from .standing import ensure_folder, ensure_two_files, find_same, make_durable, nothing_done, same_content, why_not_ours


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A copy under its final name."""

    path: Path
    size: int
    """In bytes."""
    sha256: str
    """Of its content, in hexadecimal."""
    was_there: bool = False
    """The same content stood there before, or nobody can show any more that it did not; `undo` leaves it."""


@effect(retry=FILES, timeout=COPY_TIMEOUT, not_done=FinalError)
def copy_file(attempt: Attempt[Any], source: Path, target: Path) -> CopiedFile:
    """Copy a file, so that the target is there whole, durable and verified, or not at all, whatever is killed when.

    Both paths are absolute, and the target's folder is there. A target that is there with the same content is the result; one
    with other content is a `TargetExistsError` and stays. A source that changes while it is read is `NotDone`. A cancel is seen,
    and progress in bytes reported, after each MiB.
    """
    ensure_paths(source=source, target=target)
    ensure_folder(target)
    with nothing_done():
        opened = Original(source, follows_links=True)
    with opened as original, Stage(attempt, target) as stage:
        fault_points.reached("source opened")
        with nothing_done():
            ensure_two_files(original, target)
        there = find_same(attempt, original, target)
        digest = copy(attempt, original, stage) if there is None else there.sha256
        stage.sweep(bars=True)
        assert digest is not None  # two files were compared by it
        return CopiedFile(target, original.size, digest, was_there=there is not None)


def copy(attempt: Attempt[Any], original: Original, stage: Stage) -> str:
    """Copy and publish, and return the SHA-256. `NotDone` when it is certain that nothing was; after any other error it may have been."""
    stage.sweep()
    stage.open()
    digest = stage.fill(attempt, original)
    attempt.raise_if_canceled()
    publish(stage)
    sync_folder(stage.target.parent)
    fault_points.reached("folder synced")
    if not is_same(find(stage.target), stage.stat):
        raise FileNotFoundError(errno.ENOENT, "the target's folder was exchanged, or the copy removed, in this moment", str(stage.target))
    stage.discard()
    return digest


def publish(stage: Stage) -> None:
    """Publish; `NotDone` when something has got the final name meanwhile, which the next attempt looks at."""
    try:
        stage.publish()
    except FileExistsError as error:
        stage.discard()
        raise NotDone(error) from error


@copy_file.reconcile
def find_copy(attempt: Attempt[Any], source: Path, target: Path) -> Done[CopiedFile] | NotDone | Unsure:
    """Find out whether an attempt has published its copy, and see to it that it does not do so any more if it has not.

    The attempt's worker may be frozen anywhere. Its permission is taken away first, and then the target looked at: what it has
    published until then is there, and later it publishes nothing. A target that is there needs no bar: it replaces nothing.
    A target with the source's content is the copy, whoever made it; that this operation did is shown only by the attempt's stage
    being the same file, or the file's mark. A folder that is gone may be a disk that comes back with the copy, and a target that differs from its source may be
    a copy whose source was changed afterwards: there a person is asked, unless the attempt had a stage that never was published.
    """
    try:
        ensure_paths(source=source, target=target)
    except FinalError as error:
        return NotDone(error, revoked=True)
    if not os.path.isdir(target.parent):
        return Unsure(f"the folder {str(target.parent)!r} is not there: if its disk is mounted again, the copy may be on it")
    stage = Stage(attempt, target)
    is_free = find(target) is None
    revocation = stage.revoke() if is_free or stage.see() is not None else Revocation(False, None)
    fault_points.reached("attempt revoked")
    found = find(target)
    if found is None:
        return NotDone("nothing has the target's name", revoked=revocation.is_certain)
    reason = f"{str(target)!r} is no ordinary file"
    if is_plain(found):
        done, reason = _judge(attempt, stage, revocation, source)
        if done is not None:
            stage.sweep(bars=True)
            return Done(done)
    if revocation.made is not None:
        return NotDone(f"what this attempt has made was never published, and {reason}", revoked=True)
    return Unsure(reason)


def _judge(attempt: Attempt[Any], stage: Stage, revocation: Revocation, source: Path) -> tuple[CopiedFile | None, str]:
    """Return the copy that stands there, or why it is none."""
    target = stage.target
    with Original(target) as copied:
        is_ours = is_same(copied.stat, revocation.made)
        if is_ours:  # only what is whole ever has both names
            digest, reason = copied.hash(ticking(attempt, copied.size, "comparing")), ""
            if digest is None:  # it was published all the same: asked again, the answer is another
                raise OutlastError(f"{str(target)!r} changes while it is read")
        else:
            digest, reason = _compare(attempt, source, copied)
        if digest is None:
            return None, reason
        make_durable(copied)
        is_ours = is_ours or mark.is_put(copied.descriptor, stage.operation)
        if not is_ours:
            attempt.log.warning("%r has the content of its source, and nothing shows who put it there: an undo would leave it", str(target))
        return CopiedFile(target, copied.size, digest, was_there=not is_ours), ""


def _compare(attempt: Attempt[Any], source: Path, copied: Original) -> tuple[str | None, str]:
    try:
        opened = Original(source, follows_links=True)
    except FileNotFoundError:
        return None, f"the source {str(source)!r} is gone, so nobody can tell whether {str(copied.path)!r} is a copy of it"
    with opened as original:
        if is_same(original.stat, copied.stat):
            return None, f"{str(source)!r} and {str(copied.path)!r} are one file"
        digest = same_content(attempt, original, copied)
        return digest, f"{str(copied.path)!r} differs from {str(source)!r}: it is another file, or the source has changed since"


@copy_file.undo
def remove_copy(attempt: Attempt[Any], result: CopiedFile, source: Path, target: Path) -> None:
    """Remove the copy. What is not what was made stays, with a warning; so does the last copy, when the source is gone."""
    if result.was_there or find(target) is None:
        return
    try:
        opened = Original(target)
    except FinalError as error:
        attempt.log.warning("not taken back: %s", error)
        return
    with opened as copied:
        reason = why_not_ours(attempt, copied, result.size, result.sha256) or _why_last(copied, source)
        if reason is None and copied.is_unchanged():
            os.unlink(target)
            sync_folder(target.parent)
            return
    attempt.log.warning("%r is left where it is: %s", str(target), reason or "it is being changed")


def _why_last(copied: Original, source: Path) -> str | None:
    try:
        found = os.stat(source)
    except OSError as error:
        return f"it may be the last copy, because its source cannot be seen: {error}"
    if is_same(found, copied.stat) or found.st_size != copied.size:
        return "it may be the last copy, because its source has changed"
    return None
