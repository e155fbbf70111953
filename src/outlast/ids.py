"""The only source of randomness, and the form of every identifier."""

import hashlib
import os
import random
import secrets
import uuid
from datetime import datetime

from outlast.clock import wall_milliseconds

_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""What the digit that holds a UUID's variant becomes: its two upper bits are 10."""


def run_id() -> str:
    """Return a new run id: a UUID of version 7 (RFC 9562), which sorts by the millisecond in which it was made."""
    rest = os.urandom(10).hex()
    time = f"{wall_milliseconds():012x}"
    return f"{time[:8]}-{time[8:]}-7{rest[:3]}-{_VARIANT[rest[3]]}{rest[4:7]}-{rest[7:19]}"


def first_run_id_at(instant: datetime) -> str:
    """Return what sorts before every run id made in this millisecond or later, and after every earlier one."""
    milliseconds = f"{int(instant.timestamp() * 1000):012x}"
    return f"{milliseconds[:8]}-{milliseconds[8:]}-"


def is_run_id(text: str) -> bool:
    """Tell whether `text` is the canonical form of a UUID, which is what every run id is."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def worker_id() -> int:
    """Return a new worker incarnation: 62 random bits, positive, so that it serves as an advisory lock key as it is."""
    return secrets.randbits(62) | 1 << 61


def caller_token() -> int:
    """Return what tells one call of a ledger without an engine from every other: 62 random bits."""
    return secrets.randbits(62)


def seed() -> int:
    """Return a run's seed, from which all that is random in its body is derived."""
    return secrets.randbits(62)


def process_nonce() -> str:
    """Return a name for this process that no other has, before or after a fork."""
    return _nonce


def _renew_nonce() -> None:
    global _nonce
    _nonce = secrets.token_hex(8)


_nonce = secrets.token_hex(8)
os.register_at_fork(after_in_child=_renew_nonce)  # before any other code of the child: two threads can never see two names


def derived(seed: int, generation: int, label: str) -> bytes:
    """Return 16 bytes that depend on nothing but these three, the same at every replay."""
    return hashlib.blake2b(f"{seed}/{generation}/{label}".encode(), digest_size=16).digest()


def derived_uuid(seed: int, generation: int, label: str) -> uuid.UUID:
    return uuid.UUID(bytes=derived(seed, generation, label), version=4)


def derived_random(seed: int, generation: int, label: str) -> float:
    """Return a float in [0, 1)."""
    return (int.from_bytes(derived(seed, generation, label)[:8]) >> 11) / (1 << 53)


def jitter() -> float:
    """Return a float in [0, 1) for spreading retries and polls."""
    return random.random()
