"""Settings: what is wrong with them is said when they are given."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from outlast.context import Context
from outlast.errors import UsageError
from outlast.limits import LEASE, LEASE_MIN
from outlast.native.settings import Settings, tasks_by_name
from outlast.task import task


@task("ship")
async def ship(ctx: Context) -> None: ...


@task("ship", version=2)
async def ship_anew(ctx: Context) -> None: ...


@task("ship")
async def ship_as_well(ctx: Context) -> None: ...


def test_a_lease_that_is_too_short_is_refused() -> None:
    """The message says what the least is, which itself is allowed."""
    with pytest.raises(UsageError, match=f"at least {LEASE_MIN}"):
        Settings({}, lease=LEASE_MIN - timedelta(milliseconds=1))
    assert Settings({}, lease=LEASE_MIN).lease == LEASE_MIN
    assert Settings({}).lease == LEASE


@pytest.mark.parametrize("migrate", ["update", None, 2, ""])
def test_another_way_to_migrate_is_refused(migrate: Any) -> None:
    """There are three, and the message lists them."""
    with pytest.raises(UsageError, match='"create", True or False'):
        Settings({}, migrate=migrate)


def test_two_versions_of_a_kind_are_two_tasks() -> None:
    """They are found by kind and version; the same one named twice is one."""
    assert tasks_by_name([ship, ship_anew, ship]) == {("ship", 1): ship, ("ship", 2): ship_anew}


def test_two_tasks_of_one_kind_and_version_are_refused() -> None:
    """Nobody could tell whose run it is."""
    with pytest.raises(UsageError, match="ship version 1 twice"):
        tasks_by_name([ship, ship_as_well])


def test_what_is_no_task_is_refused() -> None:
    """A plain function among the tasks is named with its remedy."""
    with pytest.raises(UsageError, match="@task"):
        tasks_by_name([ship, print])


def test_the_database_decides_by_its_own_clock() -> None:
    """Unless a test gives an instant."""
    assert Settings({}).now() is None
