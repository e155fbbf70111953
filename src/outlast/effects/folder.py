"""Folder: what is done to names in a folder: seen, given without replacing, made durable.

It must never put one file in the place of another that somebody else has put there.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import unicodedata
from collections.abc import Callable
from pathlib import Path

NOTHING_GIVEN = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EEXIST,
        errno.ELOOP,
        errno.EMLINK,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOSPC,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
        errno.EXDEV,
    }
)
"""What says for certain that no name was given. After any other error, such as one of a network, it may have been."""
NO_LINKS = frozenset({errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
"""How a file system answers that has no hard links, or none for this file (Linux protects files of other owners)."""
_UNKNOWN_TO_THE_FILE_SYSTEM = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
_HERE, _NOREPLACE = -100, 1  # AT_FDCWD and RENAME_NOREPLACE of Linux


def find(path: Path) -> os.stat_result | None:
    """Return what stands under a name, a symbolic link as itself; None when nothing does, or its folder is gone."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_same(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    """Tell whether both are one file, whatever its names."""
    return one is not None and other is not None and os.path.samestat(one, other)


def is_one_name(one: Path, other: Path) -> bool:
    """Tell whether two paths of one file are one entry of one folder, spelled differently: removing it would remove both."""
    return os.path.samestat(os.stat(one.parent), os.stat(other.parent)) and _folded(one.name) == _folded(other.name)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())


def remove(how: Callable[[str | Path], None], path: str | Path) -> None:
    """Remove a name by `os.unlink` or `os.rmdir`; one that is gone already is no error, because others clean up too."""
    try:
        how(path)
    except FileNotFoundError:
        pass


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where its file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # it cannot: its names are as durable as they get
            raise
    finally:
        os.close(descriptor)


def rename_without_replacing(old: Path, new: Path) -> None:
    """Rename in one step that fails with `FileExistsError` when the new name is taken.

    Where neither system nor file system can do that in one step, it is a look and a rename: another program's file that
    appears under the new name between the two is replaced.
    """
    number = _rename_in_one_step(old, new)
    if number == 0:
        return
    if number not in _UNKNOWN_TO_THE_FILE_SYSTEM:
        raise OSError(number, os.strerror(number), str(old), None, str(new))
    if find(new) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(old), None, str(new))
    os.rename(old, new)


def _rename_in_one_step(old: Path, new: Path) -> int:
    """Return 0, or the error's number."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return errno.ENOSYS
    done: int = rename(_HERE, os.fsencode(old), _HERE, os.fsencode(new), _NOREPLACE)
    return ctypes.get_errno() if done else 0


def is_plain(found: os.stat_result | None) -> bool:
    """Tell whether it is an ordinary file."""
    return found is not None and stat.S_ISREG(found.st_mode)
