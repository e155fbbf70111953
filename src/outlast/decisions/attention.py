"""The attention list: what waits for a person, open questions and dead letters in one order. Pure: rows were read by stores before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from outlast.decision import DecisionView
from outlast.errors import UsageError
from outlast.ids import is_run_id
from outlast.run import RunStatus, RunView


class AttentionKind(StrEnum):
    """Why something waits for a person."""

    DECISION = "decision"
    FAILED = "failed"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class AttentionItem:
    """One thing that waits for a person."""

    kind: AttentionKind
    since: datetime
    """When it was asked, or when the run ended."""
    what: str
    """The question, or what the run failed with."""
    run: str | None
    """The run that it is about; None where an effect without an engine asks."""
    remedies: tuple[str, ...]
    """Commands, one of which takes it off the list."""
    decision: DecisionView | None = None
    failed: RunView | None = None


@dataclass(frozen=True, slots=True)
class AttentionPage:
    """A page of the list, the latest first, and where the next one begins."""

    items: tuple[AttentionItem, ...]
    next: str | None
    """Give it as `before` for the next page; None at the end."""

    @property
    def decisions(self) -> tuple[DecisionView, ...]:
        """The questions among them."""
        return tuple(item.decision for item in self.items if item.decision is not None)

    @property
    def runs(self) -> tuple[RunView, ...]:
        """The failed and dead runs among them."""
        return tuple(item.failed for item in self.items if item.failed is not None)


@dataclass(frozen=True, slots=True)
class Place:
    """How far a page went in each of the two lists that it is made of; None at the beginning of one."""

    decision: str | None = None
    run: tuple[datetime, str] | None = None
    """When it ended, and its id."""

    def text(self) -> str:
        """Return it as what is given to the next call."""
        ended_at, run_id = ("", "") if self.run is None else (self.run[0].isoformat(), self.run[1])
        return f"{ended_at},{run_id},{self.decision or ''}"


def place_from(text: str | None) -> Place:
    """Return a place from its text; UsageError for what is none."""
    if text is None:
        return Place()
    ended_at, run_id, decision = [*text.split(",", 2), "", ""][:3]
    try:
        run = (datetime.fromisoformat(ended_at), run_id) if ended_at else None
    except ValueError:
        run = None
    if text.count(",") < 2 or (run is None and (ended_at or run_id)) or (run is not None and (run[0].tzinfo is None or not is_run_id(run_id))):
        raise UsageError(f"before is {text!r}: write what the page before gave as next")
    return Place(decision or None, run)


def attention_page(decisions: Sequence[DecisionView], runs: Sequence[RunView], limit: int, before: Place) -> AttentionPage:
    """Return the first `limit` of what two pages hold, each with the latest first and up to one more than `limit`."""
    found = sorted([*map(_asked, decisions), *map(_ended, runs)], key=lambda item: item.since, reverse=True)
    items = tuple(found[:limit])
    return AttentionPage(items, None if len(found) <= limit else _place_after(items, before).text())


def _place_after(items: Sequence[AttentionItem], before: Place) -> Place:
    decision = next((item.decision.id for item in reversed(items) if item.decision is not None), before.decision)
    run = next(((item.since, item.failed.id) for item in reversed(items) if item.failed is not None), before.run)
    return Place(decision, run)


def _asked(decision: DecisionView) -> AttentionItem:
    remedies = tuple(f"outlast decide {decision.id} {option}" + (" --result JSON" if option in decision.needs_result else "") for option in decision.options)
    return AttentionItem(AttentionKind.DECISION, decision.opened_at, decision.question, decision.run, remedies, decision=decision)


def _ended(run: RunView) -> AttentionItem:
    assert run.finished_at is not None  # only runs that are over are dead letters
    is_dead = run.status is RunStatus.DEAD
    resume = () if is_dead else (f"outlast resume {run.id} --result JSON --reason TEXT",)
    remedies = (f"outlast retry {run.id}", *resume, f"outlast discard {run.id}")
    what = f"{run.kind} v{run.version}: {run.error}" if run.error is not None else f"{run.kind} v{run.version}"
    kind = AttentionKind.DEAD if is_dead else AttentionKind.FAILED
    return AttentionItem(kind, run.finished_at, what, run.id, remedies, failed=run)
