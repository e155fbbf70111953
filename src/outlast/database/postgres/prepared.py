"""Prepared: the statements that a session of the server reads and plans once, and keeps for as long as it lives.

Only for sessions that are this process's alone: behind a pooler in transaction mode each transaction has another one, which
knows nothing of what was prepared in the last. And only for statements whose best plan is the same whatever their
parameters are, for after a few times the server plans without looking at them.
"""

from collections.abc import Iterable
from functools import cache
from hashlib import blake2b

_NAME_BYTES_MAX = 63  # the server looks at no more of a name
_LOST = {"26000", "42P05", "0A000"}  # it does not have the statement, or has it already; or a table has changed under it


class Kept:
    """Which statements of one database are prepared, until it turns out that they cannot be."""

    def __init__(self, statements: Iterable[str]) -> None:
        self._statements = set(statements)

    def __contains__(self, sql: str) -> bool:
        return sql in self._statements

    def give_up(self, state: str | None) -> bool:
        """After an error: tell whether it came from what is prepared, which nothing is any more then, so that trying again helps."""
        has_failed = state in _LOST and bool(self._statements)
        if has_failed:
            self._statements.clear()
        return has_failed


class Prepared:
    """What one session has."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.names: set[bytes] = set()


@cache
def name_of(text: bytes) -> bytes:
    """Return the name of a statement, which begins as the statement does, so that traces and the server's log can be read."""
    beginning = b" ".join(text.split()).replace(b":", b"")[: _NAME_BYTES_MAX - 9]
    return beginning + b" " + blake2b(text, digest_size=4).hexdigest().encode()
