"""Decisions on SQLite: their store and its statements. The tables are made by the native engine's migrations."""

from .store import SqliteDecisionStore

__all__ = ["SqliteDecisionStore"]
