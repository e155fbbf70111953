"""`outlast demo`: a folder copied durably by workers of which one is killed and one is frozen, and the proof on the files."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click

from outlast.cli.application import json_option, leave
from outlast.errors import UsageError

from .source import Listing, list_folder

SPARE_BYTES = 64 << 20
"""What must stay free beside the copies, for the database and for others."""


@click.command()
@click.option("--source", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Copy this folder instead of a generated one.")
@click.option("--database", metavar="URL", help="Use this database, in which the runs then stay, instead of a new SQLite file.")
@click.option("--workers", type=click.IntRange(2, 16), default=3, show_default=True, help="Worker processes.")
@click.option("--keep", is_flag=True, help="Keep the folder with the copies, the database and the logs.")
@json_option
def demo(source: Path | None, database: str | None, workers: int, keep: bool, is_json: bool) -> None:
    """Copy a folder durably, while one worker is killed and another is frozen; then prove it on the files.

    Each file is a run with the steps locate, copy, verify, publish and register. The source is only read. Copies are
    slowed down, so that there is something to see: it takes some 15 seconds. The exit code is 0 only if every file
    arrived whole and once.
    """
    leave(lambda: _demo(source, database, workers, keep, is_json))


def _demo(source: Path | None, database: str | None, workers: int, keep: bool, is_json: bool) -> int:
    listing = None if source is None else _checked(source)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whatever ends the demo, it leaves no folder behind
    folder = Path(tempfile.mkdtemp(prefix="outlast-demo-"))
    url = database or f"sqlite:///{folder / 'demo.db'}"
    try:
        return asyncio.run(_perform(folder, listing, url, workers, is_json))
    finally:
        if keep:
            click.echo(f"kept: {folder}", err=True)
        else:
            shutil.rmtree(os.fsencode(folder), ignore_errors=True)


async def _perform(folder: Path, listing: Listing | None, url: str, workers: int, is_json: bool) -> int:
    """Perform, and let SIGTERM do what SIGINT does in a running loop: cancel, at an await.

    Raised anywhere, it left workers behind that were just being started.
    """
    from .performance import perform

    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    return await perform(folder, listing, url, workers=workers, is_json=is_json)


def _checked(source: Path) -> Listing:
    """List the folder before anything is made, and see that there is room for a second one."""
    listing = list_folder(source.resolve())
    if not listing.files:
        raise UsageError(f"there is no file in {source}: name a folder with some, or leave --source out")
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < listing.size + SPARE_BYTES:
        raise UsageError(f"the copies need {listing.size:,} bytes and {tempfile.gettempdir()} has {free:,} free: name a smaller folder, or set TMPDIR")
    for reason in listing.skipped:
        print(f"skipped: {reason!a}", file=sys.stderr)
    return listing
