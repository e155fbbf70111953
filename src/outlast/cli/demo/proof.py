"""Proof: what the demo claims at its end, read from the files themselves and not from the engine's word for it."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from .partial import digest_of
from .register import Register
from .source import Listing
from .watch import Watch
from .world import World


@dataclass
class Proof:
    """What was found; it holds if there are no complaints."""

    files: int
    whole: int = 0
    registered: int = 0
    succeeded: int = 0
    complaints: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.complaints


def prove(listing: Listing, world: World, watch: Watch) -> Proof:
    """Compare each source with its target, and look for anything that is there twice, is missing, or is left over."""
    proof = Proof(len(listing.files))
    _compare(listing, world.library, proof)
    _look_for_strangers(listing, world, proof)
    _count_register(listing, Register(world.register), proof)
    _count_runs(watch, proof)
    return proof


def _compare(listing: Listing, library: Path, proof: Proof) -> None:
    for file in listing.files:
        target = library / file.name
        try:
            is_whole = digest_of(listing.folder / file.name) == digest_of(target)
        except OSError as error:
            proof.complaints.append(str(error))
            continue
        if is_whole:
            proof.whole += 1
        else:
            proof.complaints.append(f"{target} differs from its source")


def _look_for_strangers(listing: Listing, world: World, proof: Proof) -> None:
    expected = {world.library / file.name for file in listing.files}
    found = {Path(parent, name) for parent, _, names in os.walk(world.library) for name in names}
    proof.complaints.extend(f"{path} was left over" for path in sorted(found - expected))
    proof.complaints.extend(f"{path} was left over" for path in Register(world.register).drafts())


def _count_register(listing: Listing, register: Register, proof: Proof) -> None:
    counts = Counter(entry.name for entry in register.read())
    for file in listing.files:
        count = counts.pop(bytes(file.name), 0)
        proof.registered += count == 1
        if count != 1:
            proof.complaints.append(f"{file.name} is {count} times in the register")
    proof.complaints.extend(f"{os.fsdecode(name)} is in the register and no source" for name in counts)


def _count_runs(watch: Watch, proof: Proof) -> None:
    for file in watch.files.values():
        if file.status == "succeeded":
            proof.succeeded += 1
        else:
            proof.complaints.append(f"the run of {file.file.name} is {file.status}: {file.why}")
