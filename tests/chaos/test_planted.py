"""The planted bugs: the checker catches them on the real store, and each of them still fits the library's own text."""

from __future__ import annotations

import pytest

from outlast.database.statements import load_statements

from .checker import SAFETY, violations
from .planted import PLANTED, edited
from .proving import play_directed

DIRECTED = [name for name, bug in PLANTED.items() if not bug.seconds]
EDITS = [pytest.param(edit, id=f"{name}-{edit.database}") for name, bug in PLANTED.items() for edit in bug.edits]


def test_there_are_enough_of_them():
    """At least ten different bugs are planted, each on one database at least."""
    assert len(PLANTED) >= 10
    assert all(bug.databases and bug.caught_by and (bug.edits or bug.code) for bug in PLANTED.values())


@pytest.mark.parametrize("edit", EDITS)
def test_each_bug_fits_the_statement_that_it_is_planted_in(edit):
    """The fragment is in the real text exactly once, so that a bug which plants nothing is noticed."""
    assert edited(load_statements(f"outlast.native.{edit.database}"), edit) != load_statements(f"outlast.native.{edit.database}")[edit.statement]


@pytest.mark.parametrize("name", ["", *DIRECTED], ids=["no bug", *DIRECTED])
def test_a_guard_that_is_taken_out_is_missed(name, database_url, tmp_path):
    """Played on the real store the directed scenario breaks no invariant; with a guard taken out it breaks that guard's."""
    evidence = play_directed(name, tmp_path, database_url if database_url.startswith("postgres") else None)
    found = violations(evidence, SAFETY)
    if not name:
        assert found == []
    else:
        assert {violation.invariant for violation in found} & set(PLANTED[name].caught_by), found
