"""PostgresSchema: is the schema `outlast` there, and does it fit this code? Each migration is a transaction of its own.

It never alters a schema unless it is told to, and never creates one twice: an advisory lock decides between callers.
"""

from outlast.database.migrations import Migration, load_migrations
from outlast.database.transaction import Database, Refusal, RefusedError, Transaction
from outlast.errors import SchemaError, UsageError
from outlast.limits import ENQUEUE_TIMEOUT

from .parameters import SQL

CODE_VERSION = 4
"""The last migration that this code knows; what a schema names as its `oldest_code`."""
_SCHEMA_LOCK = 0x6F75746C61737402
"""An advisory lock key: `outlast` in letters, and a number. Workers' own keys are smaller."""


class PostgresSchema:
    """See `outlast.native.schema.Schema`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._migrations = load_migrations("outlast.native.postgres")

    def ensure(self, mode: bool | str) -> None:
        if mode not in ("create", True, False):
            raise UsageError(f'migrate is {mode!r}: write "create", True or False')
        found = self._find()
        if mode is True or (mode == "create" and found is None):
            self.migrate()
            found = self._find()
        self._check(found)

    def check(self) -> None:
        self._check(self._find())

    def migrate(self) -> list[str]:
        created = self._apply(*self._migrations) if self._find() is None else []
        return created or [name for migration in self._migrations for name in self._apply(migration)]

    def script(self) -> str:
        return "\n".join(f"-- {migration.name}\n\n{migration.sql}" for migration in self._migrations)

    def _find(self) -> tuple[int, int] | None:
        """Return version and oldest code, or None when there is no schema. Two small reads in one transaction."""
        with self._database.reading() as tx:
            return _read(tx)

    def _apply(self, *migrations: Migration) -> list[str]:
        """Apply migrations in one transaction, unless the first is there, and return their names. Nothing is locked when it is.

        A schema is made in one: whoever looks meanwhile sees none, and never one that is half made.
        """
        migration = migrations[0]
        found = self._find()
        if found is not None and found[0] >= migration.number:
            return []
        try:
            with self._database.transaction() as tx:
                tx.run(SQL["lock_schema"], {"key": _SCHEMA_LOCK, "timeout": f"{ENQUEUE_TIMEOUT.total_seconds():.0f}s"})
                found = _read(tx)
                if found is not None and found[0] >= migration.number:
                    return []
                for statement in [statement for each in migrations for statement in _statements(each.sql)]:
                    tx.run(statement)
        except RefusedError as error:
            if error.refusal == Refusal.BUSY:
                raise SchemaError(f"migration {migration.name} waited {ENQUEUE_TIMEOUT} for another one: run `outlast migrate` again") from error
            raise SchemaError(f"migration {migration.name} was refused: {error}") from error
        return [each.name for each in migrations]

    def _check(self, found: tuple[int, int] | None) -> None:
        if found is None:
            raise SchemaError(f"there is no schema `outlast` in {self._database.url}: run `outlast migrate`")
        version, oldest_code = found
        if version < CODE_VERSION:
            raise SchemaError(f"the schema in {self._database.url} has version {version} and this code needs {CODE_VERSION}: run `outlast migrate`")
        if oldest_code > CODE_VERSION:
            raise SchemaError(f"the schema in {self._database.url} needs code of version {oldest_code} and this is {CODE_VERSION}: deploy newer code")


def _read(tx: Transaction) -> tuple[int, int] | None:
    if not tx.run(SQL["has_meta"]).all()[0][0]:
        return None
    row = tx.run(SQL["find_meta"]).first()
    return None if row is None else (row[0], row[1])


def _statements(sql: str) -> list[str]:
    """Return the statements one by one, which is how a pipeline takes them: they end with a semicolon at the end of a line,
    except within a function's body between `$$`."""
    statements, current, is_quoted = [], [], False
    for line in sql.splitlines():
        if line.lstrip().startswith("--") or not line.strip():
            continue
        current.append(line)
        is_quoted ^= line.count("$$") % 2 == 1
        if line.rstrip().endswith(";") and not is_quoted:
            statements.append("\n".join(current))
            current = []
    return statements + ["\n".join(current)] * bool(current)
