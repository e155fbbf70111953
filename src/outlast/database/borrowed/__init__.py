"""Transactions borrowed from the application: opened by its own engine, sessionmaker or pool, with its own driver.

What differs between the drivers is small and in one file each: how a transaction is opened, how a statement of ours is run
on it, and which of its errors mean that the whole of it may be tried again. No driver is imported: what the application
hands over is recognised by what it is.
"""

from .borrowing import AsyncBorrowed, AsyncBorrowing, Borrowed, Borrowing, borrowing_of
from .misfortune import Misfortune, is_certain, misfortune_of
from .remembering import Kept, Placing, Remembering, Want, transaction_tables

__all__ = [
    "AsyncBorrowed",
    "AsyncBorrowing",
    "Borrowed",
    "Borrowing",
    "Kept",
    "Misfortune",
    "Placing",
    "Remembering",
    "Want",
    "borrowing_of",
    "is_certain",
    "misfortune_of",
    "transaction_tables",
]
