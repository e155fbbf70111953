"""Instants and spans as SQLite keeps them, for the modules beside this one."""

from outlast.database.sqlite.instant import from_number, from_number_or_none, span_from_number, span_to_number, to_number, to_number_or_none

__all__ = ["from_number", "from_number_or_none", "span_from_number", "span_to_number", "to_number", "to_number_or_none"]
