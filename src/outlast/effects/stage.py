"""Stage: the name beside the target under which an attempt makes the file ready, and what it takes to give or to deny it the final name.

Theory of operation. What may come under the final name is made whole first under a name of its own in the same folder, so
that the last step is one step of the file system. That name is also the attempt's permission: it holds the digest of the
operation's key and the attempt's token, the attempt opens it once and never again, and without it there is nothing to
publish. So whoever takes the name away has revoked the attempt, however long it stays frozen: its descriptor still writes,
into a file that has no name. An attempt that has not opened its stage yet is barred by a folder of that name, which no
attempt can open and nobody can take for a file.

    no name -- open --> stage -- publish --> stage and target, one file -- end --> target
    no name -- bar --> folder, for good             stage -- take away --> no name, for good

1. Only a file that is complete, synced and read back gets the final name, by a step that replaces nothing.
2. A stage is opened once, by its attempt; nothing else creates a file under such a name.
3. Names of other operations, and of later attempts, are never touched: a reconciler that freezes and thaws harms nobody.
4. A bar stays until a later attempt has published: until then the barred one could still do so. One that is left over, when
   no later attempt did, is an empty folder.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from outlast.effect import Attempt, NotDone
from outlast.ids import seed

from . import fault_points, mark
from .folder import NO_LINKS, NOTHING_GIVEN, find, is_plain, is_same, remove, rename_without_replacing
from .original import Original, chunks_of, ticking

_PREFIX, _SUFFIX = ".outlast-", ".part"
_MODES_KEPT = 0o777  # never set-user-id and the like: the copy may belong to somebody else


class Stage:
    """The stage of one attempt; used as a context manager, which closes its file and leaves the name alone."""

    def __init__(self, attempt: Attempt[Any], target: Path, *, is_undo: bool = False) -> None:
        """Of an undo, which may run again, each run has a name of its own, and takes away those of all others."""
        digest = hashlib.blake2b(b"\0".join([attempt.key.encode(), os.fsencode(target.name), b"undo" if is_undo else b""]), digest_size=16)
        self.target = target
        self.token = attempt.token
        self._log = attempt.log
        self._is_undo = is_undo
        self.operation = digest.hexdigest()
        self._beginning = f"{_PREFIX}{self.operation}-"
        self.path = target.parent / f"{self._beginning}{self.token}{f'-{seed():x}' if is_undo else ''}{_SUFFIX}"
        self._has_predecessors = is_undo or attempt.number > 1
        self._descriptor = -1
        self.stat: os.stat_result | None = None
        """Of the file that is to be published, once the stage is opened or linked."""
        self._permission: os.stat_result | None = None
        self._was_renamed = False

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    # --- the attempt's side ---------------------------------------------------------------------------------------------------
    def fill(self, attempt: Attempt[Any], original: Original) -> str:
        """Fill the opened stage with a copy that is complete, durable and read back, and return its SHA-256. `NotDone` when it cannot be."""
        with self._nothing_done():
            try:
                digest = self._write(attempt, original)
                self._keep_marks(original)
                fault_points.reached("stage written")
                os.fsync(self._descriptor)
                fault_points.reached("stage synced")
                self._read_back(attempt, original.size, digest)
                if not original.is_unchanged():
                    raise changed(original)
            except OSError:
                raise
            except BaseException:
                os.ftruncate(self._descriptor, 0)  # no name is given to it any more; the room is, at once
                raise
        fault_points.reached("stage finished")
        return digest

    def open(self) -> None:
        """Create the stage, empty. `NotDone` when it cannot be, or the attempt was revoked before."""
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise self._barred() from None
        except OSError as error:
            raise NotDone(error) from error
        self.stat = self._permission = os.fstat(self._descriptor)
        fault_points.reached("stage opened")

    def link(self, original: Original) -> None:
        """Make the stage a second name of a file on the same file system; `OSError` when it is on another, or has no hard links."""
        try:
            os.link(original.path, self.path, follow_symlinks=False)
        except FileExistsError:
            raise self._barred() from None
        self.stat = self._permission = original.stat
        if not self.is_there():
            self.discard()
            raise NotDone(f"{str(original.path)!r} was exchanged, or this attempt revoked, in the moment of its move")
        fault_points.reached("stage opened")

    def publish(self) -> None:
        """Give the file its final name. `FileExistsError` when that is taken, `NotDone` when it was certainly not given.

        Any other error leaves open whether it was given.
        """
        try:
            self._give_name()
        except FileExistsError:
            if not is_same(find(self.target), self.stat):  # over a network it is asked for twice, and the second answer says no
                raise
        except OSError as error:
            if error.errno not in NOTHING_GIVEN:
                raise
            self.discard()
            raise NotDone(error) from error
        fault_points.reached("published")

    def _give_name(self) -> None:
        try:
            os.link(self.path, self.target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self.ensure_permitted()
            rename_without_replacing(self.path, self.target)
            if stat.S_ISDIR(os.lstat(self.target).st_mode):  # revoked and barred in this very moment
                os.rmdir(self.target)
                raise FileNotFoundError(errno.ENOENT, "the attempt was revoked", str(self.path)) from error
            self._was_renamed = True

    def ensure_permitted(self) -> None:
        """See that nobody has revoked the attempt; else `FileNotFoundError`."""
        if not self.is_there():
            raise FileNotFoundError(errno.ENOENT, "the attempt was revoked: its temporary name was taken away", str(self.path))

    def is_there(self) -> bool:
        """Tell whether the name still leads to what this attempt has made."""
        return is_same(find(self.path), self._permission)

    def keep_permission(self) -> None:
        """Have the name for longer than the publication, also where publishing was renaming; `FileExistsError` when it was barred meanwhile."""
        if self._was_renamed:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            self._permission = os.fstat(descriptor)
            os.close(descriptor)

    def discard(self) -> None:
        """Take away the own name, if this attempt has made it. Left over, it is taken away by the next attempt."""
        if self._permission is None:
            return
        try:
            self.take_away()
        except OSError as error:
            self._log.warning("%r stays behind: %s", str(self.path), error)
        fault_points.reached("stage removed")

    @contextmanager
    def _nothing_done(self) -> Iterator[None]:
        """Make the errors of the file system, before anything was published, say so."""
        try:
            yield
        except OSError as error:
            self.discard()
            raise NotDone(error) from error
        except NotDone:
            self.discard()
            raise

    def _barred(self) -> NotDone:
        self._unbar()
        return NotDone(f"this attempt was revoked before it began to write: {str(self.path)!r} was there")

    def _unbar(self) -> None:
        """Take away the bar of this attempt, which ends here and opens no other stage."""
        found = find(self.path)
        if found is not None and stat.S_ISDIR(found.st_mode):
            remove(os.rmdir, self.path)

    def _write(self, attempt: Attempt[Any], original: Original) -> str:
        digest, done, tick = hashlib.sha256(), 0, ticking(attempt, original.size)
        for chunk in original.chunks():
            tick(done)
            _write_all(self._descriptor, chunk)
            digest.update(chunk)
            done += len(chunk)
            fault_points.reached("chunk written")
        tick(done)
        if done != original.size:
            raise changed(original)
        return digest.hexdigest()

    def _keep_marks(self, original: Original) -> None:
        """Keep the source's permissions and times, where the file system has such, and mark the copy."""
        mark.put(self._descriptor, self.operation)
        try:
            os.fchmod(self._descriptor, original.stat.st_mode & _MODES_KEPT)
            os.utime(self._descriptor, ns=(original.stat.st_atime_ns, original.stat.st_mtime_ns))
        except PermissionError as error:
            self._log.warning("the permissions or times of a copy are not those of its source: %s", error)

    def _read_back(self, attempt: Attempt[Any], size: int, expected: str) -> None:
        """Compare what the disk has, not what memory has, with what was read from the source."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        tick, digest = ticking(attempt, size, "reading back"), hashlib.sha256()
        for chunk in chunks_of(self._descriptor, size):
            digest.update(chunk)
            tick(size)
        if digest.hexdigest() != expected:
            raise OSError(errno.EIO, "what was written reads differently", str(self.path))

    # --- the reconciler's side ------------------------------------------------------------------------------------------------
    def see(self) -> os.stat_result | None:
        """Return what the attempt has made under its name, if it is there."""
        found = find(self.path)
        return found if is_plain(found) else None

    def revoke(self) -> Revocation:
        """Take the attempt's permission away, or bar it from getting one. What has the final name already keeps it."""
        for _ in range(2):  # it may open its stage just before it is barred, and opens it once
            made = self.see()
            if made is not None:
                self.take_away()
                return Revocation(True, made)
            try:
                os.mkdir(self.path, 0o700)
            except FileExistsError:
                if self.see() is None:
                    return Revocation(True, None)  # barred before
            except OSError as error:
                self._log.warning("an attempt could not be barred, so it is waited for: %s", error)
                return Revocation(False, None)
            else:
                return Revocation(True, None)
        return Revocation(False, None)

    def take_away(self) -> None:
        """Take the name away, be it what the attempt has made or its bar."""
        if is_plain(find(self.path)):
            remove(os.unlink, self.path)
        else:
            self._unbar()

    # --- what is left over ------------------------------------------------------------------------------------------------------
    def sweep(self, *, bars: bool = False) -> None:
        """Take away what earlier attempts of the same operation have left; their bars only once a file has the final name."""
        if not self._has_predecessors:
            return
        try:
            for entry in self._earlier():
                if not entry.is_dir(follow_symlinks=False):
                    remove(os.unlink, entry.path)
                elif bars:
                    remove(os.rmdir, entry.path)
        except OSError as error:
            self._log.warning("what earlier attempts have left stays behind: %s", error)

    def _earlier(self) -> Iterator[os.DirEntry[str]]:
        with os.scandir(self.target.parent) as entries:
            for entry in entries:
                if entry.name.startswith(self._beginning) and entry.name.endswith(_SUFFIX) and entry.name != self.path.name:
                    token = entry.name.removeprefix(self._beginning).removesuffix(_SUFFIX)
                    if self._is_undo or (token.isdecimal() and int(token) < self.token):
                        yield entry


@dataclass(frozen=True, slots=True)
class Revocation:
    """What taking an attempt's permission away has shown."""

    is_certain: bool
    """It cannot publish any more."""
    made: os.stat_result | None
    """What stood under its name, so that it is known again under the final one."""


def _write_all(descriptor: int, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def changed(original: Original) -> NotDone:
    """Return what is raised when there is no one content that the source had."""
    return NotDone(f"{str(original.path)!r} changed while it was read: let its writer finish, then try again")
