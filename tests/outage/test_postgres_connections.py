"""Connections that are ended by the server, or that swallow every byte: workers go on by themselves, and nobody takes their runs."""

import signal
import time

import psycopg
import pytest
from tests.concurrency.tcp_proxy import TcpProxy

from .outage import Outage

OTHERS = "pid <> pg_backend_pid() AND datname = current_database() AND application_name LIKE 'outlast%'"
STOP_SECONDS_MAX = 30.0
"""A worker here stops within ten seconds of being told; the rest is for a loaded machine."""


@pytest.fixture
def proxy(postgres_url):
    proxy = TcpProxy(postgres_url)
    yield proxy
    proxy.close()


def sessions(url):
    """The sessions of workers by the number of their server process."""
    with psycopg.connect(url, autocommit=True) as connection:
        return dict(connection.execute(f"SELECT pid, application_name FROM pg_stat_activity WHERE {OTHERS}").fetchall())


def end_session(url, pid):
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute("SELECT pg_terminate_backend(%s)", [pid]).fetchone() == (True,)


def test_each_connection_of_the_workers_may_be_ended(postgres_url, tmp_path):
    """Ended one after the other, pool, lease, lock and listener come back by themselves; no worker is taken for dead."""
    with Outage(postgres_url, tmp_path) as outage:
        outage.enqueue_now("--kind", "journey", "--count", "150")
        for _ in range(2):
            outage.work("--lease", "30s")
        outage.wait_until("every kind of connection is there", lambda: len(set(sessions(postgres_url).values())) == 4)
        ended = [name for pid, name in sorted(sessions(postgres_url).items(), key=lambda one: one[1]) if end_session(postgres_url, pid)]
        for name, count in (("outlast listen", 2), ("outlast lock", 2), ("outlast lease", 2)):
            outage.wait_until(f"{name} is back", lambda name=name, count=count: list(sessions(postgres_url).values()).count(name) == count)
            assert ended.count(name) == count
        assert "outlast" in ended
        outage.assert_whole()
        assert outage.query("SELECT is_alive, count(*) FROM {worker} GROUP BY is_alive") == [(True, 2)]


def test_a_black_hole_before_the_listener_costs_latency_only(proxy, postgres_url, tmp_path):
    """While nothing comes through to the listener, and after it has said that it is deaf, runs are found by polling."""
    with Outage(postgres_url, tmp_path) as outage:
        outage.work("--lease", "30s", "--direct-url", proxy.url)
        outage.enqueue_now("--kind", "once")
        outage.wait_until_all()
        proxy.passing.clear()
        outage.enqueue_now("--kind", "once", "--first", "1")
        outage.wait_until_all()
        outage.wait_until_logged("wake-ups do not arrive")
        outage.enqueue_now("--kind", "once", "--first", "2")
        outage.wait_until_all()
        assert outage.logged("wake-ups arrive again") == 0, "it heard: there was no fault"
        proxy.passing.set()
        outage.wait_until_logged("wake-ups arrive again")
        assert outage.logged("wake-ups do not arrive") == 1
        outage.assert_whole()
        assert outage.query("SELECT is_alive, count(*) FROM {worker} GROUP BY is_alive") == [(True, 1)]


def test_an_ended_listener_costs_latency_only(postgres_url, tmp_path):
    """A run that comes while the listener is gone is found, and the listener comes back."""
    with Outage(postgres_url, tmp_path) as outage:
        outage.work("--lease", "30s")
        outage.wait_until("it listens", lambda: "outlast listen" in sessions(postgres_url).values())
        for number in range(3):
            listeners = [pid for pid, name in sessions(postgres_url).items() if name == "outlast listen"]
            assert [end_session(postgres_url, pid) for pid in listeners] == [True]
            outage.enqueue_now("--kind", "once", "--first", str(number))
            outage.wait_until_all()
            outage.wait_until(
                "it listens again", lambda old=listeners: "outlast listen" in {sessions(postgres_url)[pid] for pid in sessions(postgres_url).keys() - old}
            )
        outage.assert_whole()


def test_runs_of_a_worker_in_a_black_hole_go_on_elsewhere(proxy, postgres_url, tmp_path):
    """While every byte of a worker is swallowed another takes its runs; when bytes pass again it works on under a new identity."""
    with Outage(postgres_url, tmp_path) as outage:
        worker = outage.work("--lease", "4s", url=proxy.url)
        caller = outage.call("journey", "--callers", "1", "--pause", "0.2", "--insists")
        caller.wait_for("accepted", 10)
        proxy.passing.clear()
        other = outage.work("--lease", "4s")
        assert '"end": "silent"' in other.wait_for("worker_ended")
        proxy.passing.set()
        worker.wait_for("worker_started", count=2)
        caller.wait_for("accepted", 5)
        outage.assert_whole()
        assert {body["pid"] for body in outage.bodies()} == {worker.process.pid, other.process.pid}


def test_connections_that_are_never_answered_again_are_given_up(proxy, postgres_url, tmp_path):
    """Where the connections that a worker and a caller have swallow every byte for ever, new ones are made: no lease is lost, and all runs end."""
    with Outage(postgres_url, tmp_path) as outage:
        outage.work("--lease", "8s", url=proxy.url)
        caller = outage.call("journey", "--callers", "2", "--pause", "0.2", "--insists", url=proxy.url)
        caller.wait_for("accepted", 10)
        proxy.swallow()
        caller.wait_for("unknown")
        caller.wait_for("accepted", 5)
        outage.assert_whole()
        assert outage.logged("the database does not answer") >= 1
        assert outage.query("SELECT is_alive, count(*) FROM {worker} GROUP BY is_alive") == [(True, 1)]


def test_a_worker_in_a_black_hole_stops_in_its_time(proxy, postgres_url, tmp_path):
    """SIGTERM ends a worker whose every byte is swallowed, within its time-out, and another finishes its runs."""
    with Outage(postgres_url, tmp_path) as outage:
        worker = outage.work("--lease", "4s", url=proxy.url)
        outage.enqueue_now("--kind", "journey", "--count", "10")
        worker.wait_for("step_attempt_started", count=10)
        proxy.passing.clear()
        began = time.monotonic()
        worker.signal(signal.SIGTERM)
        worker.wait()
        assert time.monotonic() - began < STOP_SECONDS_MAX
        outage.workers.remove(worker)
        outage.work("--lease", "4s")
        outage.assert_whole()
