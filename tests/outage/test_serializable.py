"""An administrator's stricter isolation level for a database: the engine's transactions are what they are everywhere."""

import psycopg

from outlast.testing.postgres_server import PostgresServer

from .outage import Outage


def test_a_serializable_default_changes_nothing(own_server: PostgresServer, tmp_path):
    """With `default_transaction_isolation = serializable` two workers and many callers go on as ever, and no transaction fails to serialize."""
    with psycopg.connect(own_server.url("app"), autocommit=True) as connection:
        connection.execute("ALTER ROLE postgres SET default_transaction_isolation = 'serializable'")
    with Outage(own_server.url("app"), tmp_path) as outage:
        assert outage.query("SHOW default_transaction_isolation") == [("serializable",)]
        for _ in range(2):
            outage.work("--lease", "30s")
        outage.call("once", "--callers", "10", "--pause", "0").wait_for("accepted", 1000)
        outage.call("journey", "--callers", "2", "--insists").wait_for("accepted", 30)
        outage.assert_whole()
    assert "could not serialize" not in own_server.log
