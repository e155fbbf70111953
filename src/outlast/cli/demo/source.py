"""Source: the files that the demo copies, generated or found in a folder. It changes nothing in a folder that it was given."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

MIB = 1 << 20
LARGE = (20 * MIB, 20 * MIB, 18 * MIB, 16 * MIB, 14 * MIB, 12 * MIB)
MEDIUM_COUNT, SMALL_COUNT = 10, 16
ODD_NAMES = (
    b"with spaces and 'quotes' \"both\".txt",
    "ünïcödé 名前 🎬.mkv".encode(),
    b"two\nlines.txt",
    b"\x1b[31mred\x1b[0m.txt",
    b"-rf",
    b".hidden",
    b"latin1 caf\xe9 \xff.txt",
    b"n" * 251 + b".txt",
    "folder \u202eevil/inner/deep.txt".encode(),
    b"empty",
)
"""Names that programs have tripped over: each is a file of the generated source."""


@dataclass(frozen=True)
class SourceFile:
    """A regular file below the source folder."""

    name: PurePath
    size: int


@dataclass(frozen=True)
class Listing:
    """What is to be copied, the largest first, and what is not and why."""

    folder: Path
    files: tuple[SourceFile, ...]
    skipped: tuple[str, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def generate(folder: Path) -> None:
    """Fill a new folder with some 40 files whose content is the same in every demo."""
    sizes = [(f"large {number}.bin".encode(), size) for number, size in enumerate(LARGE, 1)]
    sizes += [(f"medium {number:02}.bin".encode(), MIB + number * 300_007) for number in range(1, MEDIUM_COUNT + 1)]
    sizes += [(f"small {number:02}.bin".encode(), number * number * 1_009) for number in range(1, SMALL_COUNT + 1)]
    sizes += [(name, 0 if name == b"empty" else 1_000 * len(name)) for name in ODD_NAMES]
    for name, size in sizes:
        path = folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.write_bytes(hashlib.shake_128(name).digest(size))
        except OSError:
            if name not in ODD_NAMES:
                raise
            continue  # a file system may refuse such a name, and then there is none to copy


def list_folder(folder: Path) -> Listing:
    """Return the regular files in a folder and below it; links are not followed."""
    skipped: list[str] = []
    files = sorted(_files(folder, skipped), key=lambda file: (-file.size, bytes(file.name)))
    return Listing(folder, tuple(files), tuple(skipped))


def _files(folder: Path, skipped: list[str]) -> Iterator[SourceFile]:
    for parent, folders, names in os.walk(folder, onerror=lambda error: skipped.append(str(error))):
        skipped.extend(f"{Path(parent, name)} is a link" for name in folders if Path(parent, name).is_symlink())
        for name in names:
            path = Path(parent, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                yield SourceFile(path.relative_to(folder), status.st_size)
            else:
                skipped.append(f"{path} is a link, or no regular file")
