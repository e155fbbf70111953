"""The ledger on SQLite: its store and its statements. The tables are made by the native engine's migrations."""

from .store import SqliteLedgerStore

__all__ = ["SqliteLedgerStore"]
