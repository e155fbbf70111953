"""World: the PostgreSQL server of a benchmark, with everything durable, and a new database for each measurement."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from outlast.testing.postgres_server import PostgresServer

from .contender import Contender


class World:
    """Where contenders are measured. A database lives for one measurement, so that no one inherits another's rows."""

    def __init__(self, server: PostgresServer, *, is_short: bool) -> None:
        self.server = server
        self.is_short = is_short
        self._numbers = itertools.count(1)

    def size(self, full: int, short: int) -> int:
        """Choose how many, by how long the run may take."""
        return short if self.is_short else full

    @contextmanager
    def database(self, contender: Contender) -> Iterator[str]:
        """Make a database with the contender's empty schema, and remove it at the end."""
        name = f"bench_{next(self._numbers)}"
        url = self.server.create_database(name)
        try:
            contender.run("prepare", url=url)
            yield url
        finally:
            self.server.drop_database(name)

    def settle(self) -> None:
        """Write out what earlier work left dirty, so that the next measurement does not pay for it."""
        with psycopg.connect(self.server.url("postgres"), autocommit=True) as connection:
            connection.execute("CHECKPOINT")
