"""The PostgreSQL driver: addresses, connections, transactions sent as pipelines, and refusals. It knows no tables."""

from .connections import Connection
from .database import PostgresDatabase
from .loop_transaction import LoopTransaction

__all__ = ["Connection", "LoopTransaction", "PostgresDatabase"]
