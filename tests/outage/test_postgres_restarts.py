"""The server crashes again and again under load, or is away for longer than a lease: all runs end, and every answer was true."""

from collections.abc import Iterator

import pytest
from tests.concurrency.tcp_proxy import TcpProxy

from outlast.testing.postgres_server import PostgresServer

from .outage import Outage, pause
from .supervised import Supervised

RESTARTS = 4
LEASE_SECONDS = 6


@pytest.fixture
def proxy(own_server: PostgresServer) -> Iterator[TcpProxy]:
    """The way of one of two workers, who may come back later than the other."""
    proxy = TcpProxy(own_server.url("app"))
    yield proxy
    proxy.close()


def test_a_server_that_crashes_again_and_again_loses_nothing(own_server: PostgresServer, tmp_path):
    """After each of several crashes under load callers and workers go on by themselves, and every answer was true."""
    with Outage(own_server.url("app"), tmp_path) as outage:
        for _ in range(2):
            outage.work("--lease", "30s")
        once, journeys = outage.call("once"), outage.call("journey", "--callers", "1", "--pause", "0.2", "--insists")
        for _ in range(RESTARTS):
            once.wait_for("accepted", 10)
            journeys.wait_for("accepted", 3)
            own_server.restart("immediate")
        once.wait_for("accepted", 10)
        journeys.wait_for("accepted", 3)
        outage.assert_whole()
        assert own_server.log.count("immediate shutdown request") == RESTARTS
        assert outage.logged("the database answers again") >= 1, "no worker noticed: there was no fault"
        assert outage.query("SELECT is_alive, count(*) FROM {worker} GROUP BY is_alive") == [(True, 2)]


def test_a_free_lock_after_a_restart_proves_no_death(own_server: PostgresServer, proxy: TcpProxy, tmp_path):
    """A worker that reaches the server some seconds after it came back, when its lock has been free at several looks, is not taken for dead."""
    with Outage(own_server.url("app"), tmp_path) as outage:
        outage.work("--lease", "30s")
        outage.work("--lease", "30s", url=proxy.url)
        caller = outage.call("journey", "--callers", "1", "--pause", "0.2", "--insists")
        caller.wait_for("accepted", 10)
        proxy.is_refusing = True
        own_server.restart("immediate")
        pause(5)  # three looks
        proxy.is_refusing = False
        caller.wait_for("accepted", 10)
        outage.assert_whole()
        assert outage.query("SELECT is_alive, count(*) FROM {worker} GROUP BY is_alive") == [(True, 2)]


def test_after_an_outage_longer_than_the_lease_everyone_renews_before_anyone_takes(own_server: PostgresServer, proxy: TcpProxy, tmp_path):
    """When the server comes back after every lease is over, one worker later than the other, both keep their identity, and all runs end."""
    lease = 15
    with Outage(own_server.url("app"), tmp_path) as outage:
        workers = [outage.work("--lease", f"{lease}s", url=url) for url in (own_server.url("app"), proxy.url)]
        once, journeys = outage.call("once"), outage.call("journey", "--callers", "1", "--pause", "0.2", "--insists")
        journeys.wait_for("accepted", 20)
        proxy.is_refusing = True
        own_server.halt("immediate")
        pause(lease + 1)
        own_server.resume()
        pause(2)  # a look; a third of the lease is the time that nobody judges
        proxy.is_refusing = False
        once.wait_for("accepted", 5)
        journeys.wait_for("accepted", 5)
        outage.assert_whole()
        assert once.told("refused", "unknown"), "nobody was refused: there was no fault"
        assert outage.query("SELECT is_alive, count(*) FROM {worker} GROUP BY is_alive") == [(True, 2)]
        assert not [line for worker in workers for line in worker.said if line.startswith(("worker_ended", "lease_lost"))]


def test_a_supervisor_kills_nobody_for_an_outage(own_server: PostgresServer, tmp_path):
    """When the server is away for longer than the lease the children of `outlast worker` renew nothing, live on, and work when it is back."""
    with Outage(own_server.url("app"), tmp_path) as outage:
        caller = outage.call("journey", "--callers", "1", "--pause", "0.2", "--insists")
        with Supervised(own_server.url("app"), tmp_path, lease=f"{LEASE_SECONDS}s") as supervised:
            outage.wait_until("both execute", lambda: {body["pid"] for body in outage.bodies()} >= set(supervised.children))
            own_server.halt("immediate")
            pause(2 * LEASE_SECONDS)
            own_server.resume()
            caller.wait_for("accepted", 5)
            outage.assert_whole()
            supervised.stop()
            assert [facts for facts in supervised.said if facts["event"] in ("worker_process_silent", "worker_process_ended", "lease_lost")] == []
