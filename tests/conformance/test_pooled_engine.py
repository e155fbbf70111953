"""The native engine on PostgreSQL keeps every promise of the port through PgBouncer in transaction mode."""

from collections.abc import Callable
from functools import partial

import pytest
from tests.outage.pgbouncer import PgBouncer

from outlast.engine import Capabilities
from outlast.native.engine import CAPABILITIES
from outlast.testing import SkippingClock, SkippingEngine, skipping_engine
from outlast.testing.engine_suite import EngineSuite

pytestmark = pytest.mark.long


@pytest.fixture
def make_engine(pooler: PgBouncer, postgres_url: str) -> Callable[..., SkippingEngine]:
    return partial(skipping_engine, pooler.url(postgres_url), direct_url=postgres_url, clock=SkippingClock())


@pytest.fixture
def capabilities() -> Capabilities:
    return CAPABILITIES


class TestPooledEngine(EngineSuite):
    """One empty database a test."""
