"""The doctor before a server, or a way to it, that is not there or falls silent: a report comes in time all the same."""

import asyncio
from contextlib import closing
from datetime import timedelta

import pytest
from tests.concurrency.postgres_world import World
from tests.concurrency.tcp_proxy import TcpProxy

from outlast.finding import Check, Level
from outlast.native.doctor import examine
from outlast.native.postgres.examiner import PostgresExaminer

OK, PROBLEM, NOT_APPLICABLE = Level.OK, Level.PROBLEM, Level.NOT_APPLICABLE
WAIT = 60.0


@pytest.fixture
def url(postgres_url):
    """A new database with the tables; what is wrong with the settings of a server for tests is not asked."""
    World(postgres_url).close()
    return postgres_url


def problems(found):
    return [finding.check for finding in found if finding.level is PROBLEM and finding.check is not Check.SETTINGS]


def test_a_server_that_is_not_there_is_one_problem(url):
    """In the time that a connection may take; what needs no database is told all the same."""
    with closing(TcpProxy(url)) as proxy:
        nowhere = proxy.url
    found = asyncio.run(examine(PostgresExaminer(nowhere, direct_url=None, connections=4)))
    assert problems(found) == [Check.DATABASE]
    assert {finding.check for finding in found if finding.level is OK} == {Check.VERSIONS}


def test_a_direct_address_that_leads_nowhere_hides_nothing_else(url):
    """What goes over the main address is looked at all the same."""
    with closing(TcpProxy(url)) as proxy:
        nowhere = proxy.url
    found = asyncio.run(examine(PostgresExaminer(url, direct_url=nowhere, connections=4)))
    assert problems(found) == [Check.POOLER]
    assert [finding.check for finding in found if finding.level is NOT_APPLICABLE] == [Check.LISTENER, Check.FILES, Check.GROWTH]


def test_a_server_that_falls_silent_is_left_in_time(url):
    """The wire goes dead after the first answer: the call is ended, what is left needs no database, and the report comes."""
    with closing(TcpProxy(url)) as proxy:
        patient = PostgresExaminer(proxy.url, direct_url=None, connections=4)
        reach = patient.reach

        def reach_once() -> bool:
            has_schema = reach()
            proxy.passing.clear()
            return has_schema

        patient.reach = reach_once  # type: ignore[method-assign]
        found = asyncio.run(asyncio.wait_for(examine(patient, check_timeout=timedelta(seconds=1)), WAIT))
        assert problems(found) == [Check.VERSIONS]
        assert {finding.check for finding in found if finding.level is OK} == {Check.DATABASE, Check.VERSIONS}


def test_a_listener_before_a_silent_server_is_left_in_time(url):
    """The listening connection is one of its own, and is ended as well."""
    with closing(TcpProxy(url)) as proxy:
        patient = PostgresExaminer(url, direct_url=f"{proxy.url}?connect_timeout=2", connections=4)
        connect = patient._database.connect_direct

        def connect_once(role: str):
            connection = connect(role)
            if role == "listen":
                proxy.passing.clear()
            return connection

        patient._database.connect_direct = connect_once  # type: ignore[method-assign]
        found = asyncio.run(asyncio.wait_for(examine(patient, check_timeout=timedelta(seconds=1)), WAIT))
        assert [finding.check for finding in found if finding.remedy and finding.check is not Check.SETTINGS] == [Check.LISTENER]
