"""The native engine on SQLite: one file, one machine, any number of processes."""

from .backend import sqlite_backend

__all__ = ["sqlite_backend"]
