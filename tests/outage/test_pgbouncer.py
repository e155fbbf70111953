"""Workers and callers behind PgBouncer in transaction mode, with and without an address of the server itself.

The suites of the ports run through it too, in `tests/conformance/test_pooled_*.py`.
"""

from outlast.testing.postgres_server import PostgresServer

from .outage import Outage
from .pgbouncer import PgBouncer


def test_with_a_direct_address_death_is_proven_and_wake_ups_arrive(pooler: PgBouncer, postgres_url, tmp_path):
    """Behind a pooler the lock and the listener go to the server itself: a killed worker is found dead long before its lease of ten minutes."""
    with Outage(postgres_url, tmp_path) as outage:
        victim = outage.work("--lease", "10m", "--direct-url", postgres_url, url=pooler.url(postgres_url))
        outage.enqueue_now("--kind", "held")
        victim.wait_for("step_attempt_started")
        victim.kill()
        outage.workers.remove(victim)
        other = outage.work("--lease", "10m", "--direct-url", postgres_url, url=pooler.url(postgres_url))
        assert '"end": "dead"' in other.wait_for("worker_ended")
        (tmp_path / "go").touch()
        outage.call("journey", "--callers", "1", "--insists", url=pooler.url(postgres_url)).wait_for("accepted", 20)
        outage.assert_whole()
        assert outage.logged("wake-ups do not arrive") == 0


def test_without_a_direct_address_polls_and_silence_are_enough(pooler: PgBouncer, postgres_url, tmp_path):
    """Behind a pooler alone a worker says that it is deaf and cannot prove its life; runs are found by polls, and a killed worker by its silence."""
    with Outage(postgres_url, tmp_path) as outage:
        victim = outage.work("--lease", "4s", url=pooler.url(postgres_url))
        outage.enqueue_now("--kind", "held")
        victim.wait_for("step_attempt_started")
        outage.wait_until_logged("a pooler stands between here and the server")
        outage.wait_until_logged("wake-ups do not arrive")
        assert outage.query("SELECT is_provable FROM {worker}") == [(False,)]
        victim.kill()
        outage.workers.remove(victim)
        other = outage.work("--lease", "4s", url=pooler.url(postgres_url))
        assert '"end": "silent"' in other.wait_for("worker_ended")
        (tmp_path / "go").touch()
        outage.call("journey", "--callers", "1", "--insists", url=pooler.url(postgres_url)).wait_for("accepted", 20)
        outage.assert_whole()


def test_a_pooler_and_a_server_behind_it_that_crash_lose_nothing(own_server: PostgresServer, tmp_path):
    """Whether the pooler is killed or the server behind it crashes, callers and workers go on by themselves."""
    url = own_server.url("app")
    with PgBouncer(url) as pooler, Outage(url, tmp_path) as outage:
        for _ in range(2):
            outage.work("--lease", "30s", "--direct-url", url, url=pooler.url(url))
        once, journeys = outage.call("once", url=pooler.url(url)), outage.call("journey", "--callers", "1", "--insists", url=pooler.url(url))
        for _ in range(2):
            once.wait_for("accepted", 10)
            pooler.kill()
            pooler.start()
            once.wait_for("accepted", 10)
            own_server.restart("immediate")
        once.wait_for("accepted", 10)
        journeys.wait_for("accepted", 3)
        outage.assert_whole()
        assert outage.logged("the database answers again") >= 1, "no worker noticed: there was no fault"
        assert outage.query("SELECT is_alive, count(*) FROM {worker} GROUP BY is_alive") == [(True, 2)]
