"""Decisions on PostgreSQL: their store and its statements. The tables are made by the native engine's migrations."""

from .store import PostgresDecisionStore

__all__ = ["PostgresDecisionStore"]
