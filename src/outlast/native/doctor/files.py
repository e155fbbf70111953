"""Files of an SQLite database: who may write them, and on what they lie. Pure: modes and the table of mounts come in as data."""

import stat
from collections.abc import Sequence
from dataclasses import dataclass

from outlast.finding import Check, Finding, all_or_ok, problem, warning

NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "gpfs", "ocfs2", "gfs2", "9p", "virtiofs", "beegfs"})
NETWORK_FUSE = frozenset({"sshfs", "glusterfs", "s3fs", "gcsfuse", "rclone", "goofys", "cephfs", "davfs", "blobfuse", "juicefs"})
FLEETING = {"tmpfs": "in memory: it is gone when the machine restarts", "ramfs": "in memory: it is gone when the machine restarts"}
CONTAINER = frozenset({"overlay", "aufs", "fuse-overlayfs", "fuse.fuse-overlayfs"})


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder of the database."""

    path: str
    mode: int
    """As `stat` has it."""
    is_usable: bool
    """This user may read and write it (and enter it, if it is a folder)."""


@dataclass(frozen=True, slots=True)
class DatabaseFiles:
    """What lies on the disk."""

    folder: Entry
    """The one that the database lies in."""
    entries: Sequence[Entry]
    """The database, its journals, the folder of lock files and what is in it."""
    file_system: str | None
    """The type, as the table of mounts has it; None where it is not known."""
    deletes_journal: bool = False
    """It has the rollback journal and no journal file lies beside it, where outlast leaves an empty one after each commit."""


def judge(found: DatabaseFiles) -> list[Finding]:
    faults = [*_judge_file_system(found.file_system, found.folder.path), *_judge_folder(found.folder)]
    for entry in found.entries:
        faults.extend(_judge_entry(entry))
    if found.deletes_journal:
        text = "the last commit deleted its journal, where outlast empties it: a journal that comes back after a power cut undoes the commit"
        faults.append(
            warning(Check.FILES, text, "PRAGMA journal_mode = TRUNCATE in every other program that writes the file; after a restore from a backup all is well")
        )
    where = f"on {found.file_system}" if found.file_system else "on a file system whose type is not known here"
    return all_or_ok(faults, Check.FILES, f"{where}, for their owner only")


def _judge_file_system(kind: str | None, folder: str) -> list[Finding]:
    if kind is None:
        return []
    if kind in NETWORK or (kind.startswith("fuse") and kind.partition(".")[2] in NETWORK_FUSE):
        return [problem(Check.FILES, f"{folder} lies on {kind}, a network file system, where SQLite's locks do not work", "use a local disk, or PostgreSQL")]
    if kind in FLEETING:
        return [warning(Check.FILES, f"{folder} lies on {kind}, {FLEETING[kind]}", "use a disk")]
    if kind in CONTAINER:
        return [warning(Check.FILES, f"{folder} lies on {kind}, in the layer of a container: it is gone with the container", "use a volume")]
    return []


def _judge_folder(folder: Entry) -> list[Finding]:
    if not folder.is_usable:
        return [problem(Check.FILES, f"this user cannot write in {folder.path}, where the journal and the lock files are made", "give the user the folder")]
    if folder.mode & stat.S_IWOTH and not folder.mode & stat.S_ISVTX:
        return [problem(Check.FILES, f"everybody may write in {folder.path}, and so replace the database", f"chmod o-w {folder.path}")]
    return []


def _judge_entry(entry: Entry) -> list[Finding]:
    if not entry.is_usable:
        return [problem(Check.FILES, f"this user cannot read and write {entry.path}", "run every process as the user who owns the files")]
    shown = f"{entry.path} has mode {stat.S_IMODE(entry.mode):04o}"
    if entry.mode & stat.S_IWOTH:
        return [problem(Check.FILES, f"{shown}: everybody may write it", f"chmod go= {entry.path}")]
    if entry.mode & (stat.S_IRWXG | stat.S_IRWXO):
        return [warning(Check.FILES, f"{shown}: others may read what is passed to tasks, or write it", f"chmod go= {entry.path}")]
    return []


def file_system_of(path: str, mounts: str) -> str | None:
    """Return the type of the file system that `path` lies on. `mounts` is the text of /proc/self/mountinfo."""
    best, kind = -1, None
    for line in mounts.splitlines():
        fields, separator, rest = line.partition(" - ")
        columns, kinds = fields.split(), rest.split()
        if not separator or len(columns) < 5 or not kinds:
            continue
        point = _unescaped(columns[4])
        is_below = path == point or path.startswith(point.rstrip("/") + "/")
        if is_below and len(point) >= best:  # a later mount covers an earlier one
            best, kind = len(point), kinds[0]
    return kind


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
