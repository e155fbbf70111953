"""The native engine on PostgreSQL: the application's own database, any number of machines."""

from .backend import postgres_backend

__all__ = ["postgres_backend"]
