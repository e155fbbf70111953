"""ModelledStores: one call made on SQLite, on PostgreSQL and on the model, and everything compared after it.

Answers have to be the same three times, then the rows, and then every invariant holds. What was called before is told with a difference.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from outlast.database.transaction import Refusal, Transaction
from outlast.errors import LeaseLostError
from outlast.native.store import Checkpoint

from .store_model import StoreModel
from .store_model_invariants import INVARIANTS, Change
from .store_model_rows import Numbers, in_model_numbers, rows_of, without_used_places
from .store_model_runs import DuplicateError, LostError
from .store_model_state import State
from .store_pair import Side, StorePair

START = datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC)
EVERYTHING = 1_000
"""More than there ever is."""


class ModelledStores:
    """The three, and what was done to them."""

    def __init__(self, pair: StorePair, kinds: set[str]) -> None:
        self.pair = pair
        self.model = StoreModel()
        self.now = START
        self.story: list[str] = []
        self._kinds = kinds
        pair.empty()
        self._numbers = {id(side): Numbers() for side in pair.sides}
        self._rows: State = self.model.rows()

    def note(self, kind: str, has_happened: Any = True) -> None:
        """Take note of what really happened, so that the test can tell whether it tested anything."""
        if has_happened:
            self._kinds.add(kind)

    def pass_by(self, delay: timedelta) -> None:
        self.now += delay
        self.story.append(f"time: {self.now.isoformat()}")

    # --- calls ---------------------------------------------------------------------------------------------------------------
    def write(self, call: str, told: str, stores: Callable[[Side, Transaction], Any], model: Callable[[], Any]) -> Any:
        """Make a call in a writing transaction of each, and return the answer."""
        self.story.append(f"{call}: {told}")
        answer = self._answered(self.pair.write, stores, model)
        self._compare(Change(call, self._rows, {}, self.now))
        return answer

    def read(self, call: str, told: str, stores: Callable[[Side, Transaction], Any], model: Callable[[], Any]) -> Any:
        """Ask each, and return the answer."""
        self.story.append(f"{call}: {told}")
        return self._answered(self.pair.read, stores, model)

    def commit(self, worker_id: int, group: Sequence[Checkpoint], first: Callable[[Side, Transaction], Any] = lambda side, tx: None) -> list[Checkpoint] | None:
        """Commit a group after a fence and return what was refused, None where all of it was undone. `first` goes before it."""
        self.story.append(f"commit of {worker_id - (1 << 61)}: {list(group)}")

        def commit(side: Side, tx: Transaction) -> Any:
            numbers = self._numbers[id(side)]
            told = [numbers.translate(one) for one in group]
            side.store.fence(tx, worker_id)
            first(side, tx)
            refused = side.store.commit_checkpoints(tx, told, self.now)
            return lambda: sorted(told.index(one) for one in refused())

        answer = self._answered(self.pair.write, commit, lambda: sorted(group.index(one) for one in self.model.commit(worker_id, group, self.now)))
        is_undone = not isinstance(answer, list)
        refused = [] if is_undone else [group[place] for place in answer]
        self._compare(Change("commit", self._rows, {}, self.now, () if is_undone else tuple(group), tuple(refused)))
        self.note("fenced off", answer is LeaseLostError)
        self.note("duplicate", answer is Refusal.DUPLICATE)
        self.note("refused write", refused)
        return None if is_undone else refused

    def number(self, side: Side, number: int) -> int:
        """Return a database's number of a signal, for one of the model."""
        return self._numbers[id(side)].here(number)

    def model_number(self, side: Side, number: int) -> Any:
        return self._numbers[id(side)].model(number)

    def _answered(self, made: Callable[[Callable[[Side, Transaction], Any]], Any], stores: Callable[[Side, Transaction], Any], model: Callable[[], Any]) -> Any:
        try:
            answer = made(stores)
        except AssertionError as error:
            raise AssertionError(self._told(f"the databases answer differently\n{error}")) from error
        try:
            expected = model()
        except LostError:
            expected = LeaseLostError
        except DuplicateError:
            expected = Refusal.DUPLICATE
        assert answer == expected, self._told(f"both databases answer {answer}, and the model {expected}")
        return answer

    # --- comparing -----------------------------------------------------------------------------------------------------------
    def _compare(self, change: Change) -> None:
        expected = self.model.rows()
        for side in self.pair.sides:
            read, numbers = rows_of(side), self._numbers[id(side)]
            assert numbers.learn(read, self.model.signals), self._told("S15: the order of the signals is not that of the sends")
            rows = in_model_numbers(read, numbers)
            rows, told = without_used_places(rows), without_used_places(expected)
            assert rows == told, self._told(f"{'SQLite' if side.is_sqlite else 'PostgreSQL'} and the model differ:\n{_difference(rows, told)}")
        now = Change(change.call, change.before, expected, change.now, change.group, change.refused)
        for holds in INVARIANTS:
            try:
                holds(now)
            except AssertionError as error:
                raise AssertionError(self._told(f"{holds.__doc__}\n{error}")) from error
        self._rows = expected

    def _told(self, what: str) -> str:
        return "\n".join([what, "after:", *self.story])


def _difference(rows: State, expected: State) -> str:
    lines = []
    for table in expected:
        for key in [*expected[table], *(key for key in rows[table] if key not in expected[table])]:
            here, there = rows[table].get(key), expected[table].get(key)
            if here != there:
                names = [name for name in {**(here or {}), **(there or {})} if (here or {}).get(name) != (there or {}).get(name)] if here and there else []
                lines.append(f"{table} {key}: {_only(here, names)} instead of {_only(there, names)}")
    return "\n".join(lines)


def _only(row: dict[str, Any] | None, names: list[str]) -> Any:
    return row if row is None or not names else {name: row[name] for name in names}
