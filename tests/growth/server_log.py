"""The server's own log as a witness: which statements reached it, from whom, by the names that the store gives them.

A server with `LOGGED` writes one message for each statement that it executes, whatever protocol brought it. Three kinds
are told apart: what opens and ends a transaction, the one statement of settings that every transaction begins with, and
queries, which are all the rest, those on the connections of the lease and of the listener too.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from outlast.native.postgres.parameters import SQL

LOGGED = {"log_statement": "all", "log_line_prefix": "%m db=%d ", "log_min_messages": "log", "log_checkpoints": "off"}
"""Settings of a server whose log is read here."""

_MESSAGE = re.compile(r"^[\d-]+ [\d:.]+ \S+ db=(?P<database>\S*) LOG:  (?:statement|execute [^:]+): (?P<text>.*)", re.DOTALL)
_LINE_BEGINS = re.compile(r"^(?=\d{4}-\d\d-\d\d [\d:.]+ \S+ db=)", re.MULTILINE)
_PARAMETER = re.compile(r"%\(\w+\)s|\$\d+")
_FRAMES = ("BEGIN", "COMMIT", "ROLLBACK")
_SETTINGS = "SELECT set_config('lock_timeout'"


class Sent(NamedTuple):
    """One statement that the server was sent."""

    database: str
    name: str
    """`frame`, `settings`, the store's name of a query, or the beginning of one that the store does not know."""

    @property
    def is_query(self) -> bool:
        return self.name not in ("frame", "settings")


def read_log(text: str) -> Iterator[Sent]:
    """Give the statements of a log in their order."""
    for entry in _LINE_BEGINS.split(text):
        if message := _MESSAGE.match(entry):
            yield Sent(message["database"], _name(message["text"]))


def queries(sent: list[Sent], database: str) -> Counter[str]:
    """Count the queries of one database by name."""
    return Counter(each.name for each in sent if each.database == database and each.is_query)


def statements(sent: list[Sent], database: str) -> int:
    """Count all that one database was sent."""
    return sum(each.database == database for each in sent)


def _name(text: str) -> str:
    if text.startswith(_FRAMES):
        return "frame"
    if text.startswith(_SETTINGS) and "pg_advisory_xact_lock" not in text:
        return "settings"
    plain = _plain(text)
    return _NAMES.get(plain, plain[:60])


def _plain(text: str) -> str:
    return " ".join(_PARAMETER.sub("?", text).replace("%%", "%").split())


_NAMES = {_plain(sql): name for name, sql in SQL.items()}
