"""Which of the runs that a probe saw a worker claims: fair over queues, by priority, and one in ten by age."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from outlast.native.selection import choose, oldest_share
from outlast.native.store import Candidate

START = datetime(2026, 3, 1, tzinfo=UTC)
QUEUES = {1: "default", 2: "bulk", 3: "default"}


def seen(name: str, lane: int = 1, priority: int = 0, due: int = 0, *, is_suspect: bool = False) -> Candidate:
    return Candidate(name, lane, priority, START + timedelta(seconds=due), is_suspect)


def chosen(*candidates: Candidate, oldest: tuple[Candidate, ...] = (), by_age: int = 0, excluded: tuple[str, ...] = (), suspects: int = 1) -> list[str]:
    return choose(candidates, oldest, QUEUES, slots=10, by_age=by_age, excluded=set(excluded), suspects=suspects)


def test_within_a_queue_priority_comes_before_due_time() -> None:
    """Smaller priority first, then who was due first, over all lanes of the queue."""
    assert chosen(seen("c", 3, due=2), seen("a", 1, priority=-5, due=9), seen("b", 1, due=1)) == ["a", "b", "c"]


def test_queues_take_turns() -> None:
    """A flood of urgent runs in one queue does not starve another."""
    flood = [seen(f"f{number}", 2, priority=-100, due=number) for number in range(4)]
    assert chosen(*flood, seen("a", 1, due=7), seen("b", 3, due=8)) == ["f0", "a", "f1", "b", "f2", "f3"]


def test_the_oldest_come_first_whatever_their_priority() -> None:
    """So many as the share says, by due time alone; none is named twice."""
    old = (seen("old", priority=100, due=-50), seen("older", priority=90, due=-60), seen("oldest", priority=80, due=-70))
    assert chosen(seen("urgent", priority=-1), old[2], oldest=old, by_age=2) == ["oldest", "older", "urgent"]


def test_one_in_ten_goes_by_age() -> None:
    """However the claims are sliced, the tenth part of them is by age."""
    for slots in (1, 3, 7, 50):
        claimed = by_age = 0
        while claimed < 1_000:
            by_age += oldest_share(claimed, slots)
            claimed += slots
        assert by_age == claimed // 10


def test_what_still_lives_here_is_not_claimed() -> None:
    """A run of which an older body is alive in this process is passed over, by age too."""
    assert chosen(seen("a"), seen("b"), oldest=(seen("a"),), by_age=1, excluded=("a",)) == ["b"]


def test_suspects_are_claimed_one_at_a_time() -> None:
    """At most as many as may be executed; the others wait their turn and hold up nobody."""
    suspects = [seen(f"s{number}", due=number, is_suspect=True) for number in range(3)]
    assert chosen(*suspects, seen("a", due=9)) == ["s0", "a"]
    assert chosen(*suspects, seen("a", due=9), suspects=0) == ["a"]
    assert chosen(seen("a", due=9), oldest=tuple(suspects), by_age=3) == ["s0", "a"]


def test_nothing_seen_is_nothing_chosen() -> None:
    """An empty probe is an empty claim."""
    assert chosen() == []
