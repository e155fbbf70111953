"""The native engine on SQLite keeps every promise of the port."""

from collections.abc import Callable
from functools import partial

import pytest

from outlast.engine import Capabilities
from outlast.native.engine import CAPABILITIES
from outlast.testing import SkippingClock, SkippingEngine, skipping_engine
from outlast.testing.engine_suite import EngineSuite


@pytest.fixture
def make_engine(sqlite_url: str) -> Callable[..., SkippingEngine]:
    return partial(skipping_engine, sqlite_url, clock=SkippingClock())


@pytest.fixture
def capabilities() -> Capabilities:
    return CAPABILITIES


class TestSqliteEngine(EngineSuite):
    """One empty database a test."""
