"""The ledger on PostgreSQL: its store and its statements. The tables are made by the native engine's migrations."""

from .store import PostgresLedgerStore

__all__ = ["PostgresLedgerStore"]
