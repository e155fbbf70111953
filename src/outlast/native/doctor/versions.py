"""Versions: are the libraries and the server those that outlast was made for, and is SQLite's journal safe with them? Pure."""

from dataclasses import dataclass

from outlast.finding import Check, Finding, ok, problem, warning

OLDEST_SERVER = 15
OLDEST_PSYCOPG = (3, 3)
SAFE_WAL = "3.51.3 (or 3.50.7, or 3.44.6)"


@dataclass(frozen=True, slots=True)
class SqliteJournal:
    """How the file is written."""

    sqlite: str
    has_safe_wal: bool
    """This SQLite is free of the fault by which several processes can lose a commit under write-ahead logging."""
    is_wal: bool
    living_processes: int
    """Processes with a living worker."""


def judge_libraries(outlast: str, python: str, *, psycopg: str, libpq: str) -> list[Finding]:
    """On PostgreSQL: what this process is made of."""
    if _numbers(psycopg) < OLDEST_PSYCOPG:
        return [problem(Check.VERSIONS, f"psycopg is {psycopg}, and 3.3 is the oldest that works", "pip install --upgrade 'outlast[postgres]'")]
    return [ok(Check.VERSIONS, f"outlast {outlast}, Python {python}, psycopg {psycopg}, libpq {libpq}")]


def judge_server(name: str, major: int) -> list[Finding]:
    """`name` is the version as the server calls itself."""
    if major < OLDEST_SERVER:
        return [problem(Check.VERSIONS, f"the server is PostgreSQL {name}, and {OLDEST_SERVER} is the oldest that works", "upgrade the server")]
    return [ok(Check.VERSIONS, f"the server is PostgreSQL {name}")]


def judge_sqlite(outlast: str, python: str, sqlite: str) -> list[Finding]:
    """An SQLite that is too old is refused when a database is opened; what was opened is only told."""
    return [ok(Check.VERSIONS, f"outlast {outlast}, Python {python}, SQLite {sqlite}")]


def judge_journal(found: SqliteJournal) -> list[Finding]:
    if not found.is_wal:
        return [ok(Check.VERSIONS, "the file has the rollback journal, which is safe with every version of SQLite")]
    if found.has_safe_wal:
        return [ok(Check.VERSIONS, f"the file has write-ahead logging, which is safe with SQLite {found.sqlite}")]
    fault = f"the file has write-ahead logging, and with SQLite {found.sqlite} several processes on it can lose a commit"
    remedy = f'stop every process and start with journal="delete" (or "auto"), or use SQLite {SAFE_WAL} or later'
    if found.living_processes > 1:
        return [problem(Check.VERSIONS, f"{fault}; {found.living_processes} processes have living workers", remedy)]
    return [warning(Check.VERSIONS, f"{fault}; it is safe as long as a single process uses it", remedy)]


def _numbers(version: str) -> tuple[int, ...]:
    """Return major and minor of `3.3.2.dev1`; what is no number ends it."""
    numbers: list[int] = []
    for part in version.split(".")[:2]:
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
