"""Finding: what one check of the doctor found. The words are read by programs (`outlast doctor --json`) and never change."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """It works, and is slower, or less safe, than it could be."""
    PROBLEM = "problem"
    """A promise does not hold, or runs do not move."""
    NOT_APPLICABLE = "not_applicable"
    """There is no such thing on this database, or what is needed to look is missing."""


class Check(StrEnum):
    """What was looked at."""

    DATABASE = "database"
    VERSIONS = "versions"
    SETTINGS = "settings"
    SCHEMA = "schema"
    POOLER = "pooler"
    LISTENER = "listener"
    CLOCK = "clock"
    FILES = "files"
    CONNECTIONS = "connections"
    PLAN = "plan"
    SNAPSHOTS = "snapshots"
    LANES = "lanes"
    GROWTH = "growth"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report."""

    check: Check
    level: Level
    message: str
    """What was found, with the numbers."""
    remedy: str = ""
    """What to do; empty unless it is a warning or a problem."""


def ok(check: Check, message: str) -> Finding:
    return Finding(check, Level.OK, message)


def warning(check: Check, message: str, remedy: str) -> Finding:
    return Finding(check, Level.WARNING, message, remedy)


def problem(check: Check, message: str, remedy: str) -> Finding:
    return Finding(check, Level.PROBLEM, message, remedy)


def not_applicable(check: Check, message: str) -> Finding:
    return Finding(check, Level.NOT_APPLICABLE, message)


def all_or_ok(found: list[Finding], check: Check, message: str) -> list[Finding]:
    """Return what was found, or that all is well."""
    return found or [ok(check, message)]
