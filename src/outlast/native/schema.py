"""Schema: is the database's schema there, and does it fit this code?"""

from typing import Protocol


class Schema(Protocol):
    """The migrations of one database."""

    def ensure(self, mode: bool | str) -> None:
        """`"create"` makes a missing schema and never alters one, `True` also upgrades, `False` does neither.

        Raises `SchemaError` when what is there then does not fit this code: too old, or its `oldest_code` too new.
        """
        ...

    def check(self) -> None:
        """Raise `SchemaError` when the schema does not fit this code (any more). One small read."""
        ...

    def migrate(self) -> list[str]:
        """Apply what is missing, under a lock, each migration in a transaction of its own; return their names."""
        ...

    def script(self) -> str:
        """Return the SQL of all migrations, for an application's own migration tool."""
        ...
