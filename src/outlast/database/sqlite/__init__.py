"""SQLite through the standard library's `sqlite3`, and only that: a second SQLite library in one process drops the first one's file locks."""

from .connection import Journal
from .database import SqliteDatabase

__all__ = ["Journal", "SqliteDatabase"]
