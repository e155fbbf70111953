"""SmallDisk: a file system of some megabytes in memory that a test fills to the last byte and frees again."""

import os
import subprocess
from pathlib import Path

_BLOCK = 1 << 20


class SmallDisk:
    """Mounted on a folder within a `with` block; what is on it is gone afterwards. Only root can make one."""

    def __init__(self, folder: Path, megabytes: int = 128) -> None:
        self.folder = folder
        self._megabytes = megabytes
        self._ballast = folder / "ballast"

    def __enter__(self) -> "SmallDisk":
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m,mode=755", "outage", str(self.folder)], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)  # whoever is still ending may hold a file on it

    def fill(self, but: int = 0) -> None:
        """Leave no room, or `but` bytes of it."""
        descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            block = bytes(_BLOCK)
            while len(block):
                try:
                    written = os.write(descriptor, block)
                except OSError:
                    written = 0
                if written < len(block):
                    block = block[: len(block) // 2]
            if but:
                os.ftruncate(descriptor, max(os.fstat(descriptor).st_size - but, 0))
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Give the room back."""
        self._ballast.unlink()
