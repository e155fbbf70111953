"""The PostgreSQL driver: addresses, connections, transactions sent as pipelines, and refusals. It knows no tables."""

from .connections import Connection
from .database import PostgresDatabase

__all__ = ["Connection", "PostgresDatabase"]
