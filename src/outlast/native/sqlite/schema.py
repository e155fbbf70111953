"""SqliteSchema: whether the tables are there and fit this code, and how they get there. It never alters them without being asked to."""

from outlast.database.migrations import load_migrations
from outlast.database.sqlite import SqliteDatabase
from outlast.database.statements import load_statements
from outlast.errors import SchemaError, UsageError

_PACKAGE = "outlast.native.sqlite"
CODE_VERSION = 4
"""The schema version that this code was written for: the number of the last migration that it needs."""


class SqliteSchema:
    """The native engine's schema in one file."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._sql = load_statements(_PACKAGE)

    def ensure(self, mode: bool | str) -> None:
        if mode not in ("create", True, False):
            raise UsageError(f'migrate is {mode!r}: write "create", True or False')
        if mode is True or (mode == "create" and self._find() is None):
            self.migrate()
        self.check()

    def check(self) -> None:
        found = self._find()
        file = self._database.path
        if found is None:
            raise SchemaError(f"{file} has no tables of outlast: run `outlast migrate`")
        version, oldest_code = found
        if version < CODE_VERSION:
            raise SchemaError(f"{file} has schema version {version}, and this code needs {CODE_VERSION}: run `outlast migrate`")
        if oldest_code > CODE_VERSION:
            raise SchemaError(f"{file} has schema version {version}, which code of version {CODE_VERSION} cannot use: deploy a newer outlast")

    def migrate(self) -> list[str]:
        created = self._create() if self._find() is None else []
        return created or [migration.name for migration in load_migrations(_PACKAGE) if self._apply(migration.number, migration.sql)]

    def script(self) -> str:
        return "\n".join(f"-- {migration.name}\n\n{migration.sql}" for migration in load_migrations(_PACKAGE))

    def _create(self) -> list[str]:
        """Make a schema where there is none, in one transaction: whoever looks meanwhile sees none, and never one that is half made."""
        migrations = load_migrations(_PACKAGE)
        with self._database.transaction() as tx:
            if tx.run(self._sql["has_meta"]).all() == [(1,)]:
                return []
            for migration in migrations:
                tx.run_script(migration.sql)
        return [migration.name for migration in migrations]

    def _apply(self, number: int, sql: str) -> bool:
        """Apply a migration unless somebody did; the immediate transaction is the lock."""
        with self._database.transaction() as tx:
            has_meta = tx.run(self._sql["has_meta"]).all() == [(1,)]
            row = tx.run(self._sql["find_meta"]).first() if has_meta else None
            if row is not None and row[0] >= number:
                return False
            tx.run_script(sql)
        return True

    def _find(self) -> tuple[int, int] | None:
        with self._database.reading() as tx:
            if tx.run(self._sql["has_meta"]).all() != [(1,)]:
                return None
            row = tx.run(self._sql["find_meta"]).first()
        return None if row is None else (row[0], row[1])
