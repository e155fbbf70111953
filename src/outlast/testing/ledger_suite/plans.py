"""What a ledger's store promises about plans: there once, found and listed as they were, and what cannot be kept is refused."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest

from outlast.database.transaction import Refusal, RefusedError
from outlast.ledger.operation import Change, OperationName, OperationStatus, Owner, Plan
from outlast.limits import OPERATION_NAME_BYTES_MAX

from .world import ERROR, NAME, OWNER, RUN, LedgerWorld, LedgerWorldSuite, after, new_name


@dataclass(frozen=True, slots=True)
class Bad:
    """Something that a database would not take, and how it is given."""

    name: str
    act: Callable[[LedgerWorld], None]


BAD = [
    Bad("a NUL in the key", lambda world: world.plan(OperationName("add_torrent", "a\0b"))),
    Bad("a NUL in the effect", lambda world: world.plan(OperationName("a\0b", "key"))),
    Bad("a surrogate in the key", lambda world: world.plan(OperationName("add_torrent", "a\ud800b"))),
    Bad("a NUL in the step", lambda world: world.plan(owner=Owner(RUN, 0, "a\0b", 3, None))),
    Bad("arguments that are no JSON", lambda world: world.plan(arguments="[1")),
    Bad("arguments with a NUL", lambda world: world.plan(arguments='["\0"]')),
    Bad("a token beyond 64 bits", lambda world: world.plan(owner=Owner(RUN, 0, "step", 1 << 64, None))),
]
BAD_RESULTS = ['{"a":', '"\0"', '"\ud800"']


class PlansSuite(LedgerWorldSuite):
    """Plans, and how operations are read."""

    def test_a_plan_is_kept_as_it_was_made(self, world: LedgerWorld) -> None:
        """Name, arguments, digest, owner and instants come back; nothing was attempted."""
        world.plan(now=after(1.000001))
        operation = world.operation(now=after(9))
        assert (operation.name, operation.arguments, operation.digest, operation.owner) == (NAME, '["a"]', "digest-of-arguments", OWNER)
        assert (operation.status, operation.attempt, operation.result, operation.error, operation.decision) == (OperationStatus.PLANNED, None, None, None, None)
        assert (operation.planned_at, operation.changed_at, operation.now, operation.reconciles) == (after(1.000001), after(1.000001), after(9), 0)

    def test_no_arguments_and_no_worker_are_kept(self, world: LedgerWorld) -> None:
        """An effect without arguments has an empty text, and a caller without an engine neither run nor worker."""
        owner = Owner("", 0, "", (1 << 62) - 1, None)
        world.plan(owner=owner, arguments="")
        assert (world.operation().arguments, world.operation().owner) == ("", owner)

    def test_a_plan_is_inserted_once(self, world: LedgerWorld) -> None:
        """The second caller's plan changes nothing, whoever he is and whatever he plans."""
        world.plan()
        first = world.operation()
        world.plan(owner=Owner("another", 1, "step", 9, None), arguments='["b"]', now=after(5), digest="another")
        assert world.operation() == first

    def test_an_operation_that_began_is_not_planned_anew(self, world: LedgerWorld) -> None:
        """A plan that comes again, in whatever state the operation is, changes nothing."""
        for status in OperationStatus:
            name = new_name()
            world.bring(status, name)
            before = world.operation(name)
            world.plan(name, now=after(60))
            assert world.operation(name) == before

    def test_what_was_never_planned_is_not_found(self, world: LedgerWorld) -> None:
        """Neither a lock nor a look finds it, and nothing of it can be changed."""
        assert (world.find(), world.lock()) == (None, None)
        assert (world.begin(), world.change(Change.GIVE_UP, 0), world.count_reconcile(0), world.late(1, 1, "1")) == (None, False, False, False)

    def test_two_effects_may_use_one_key(self, world: LedgerWorld) -> None:
        """The name is effect and key together."""
        other = OperationName("remove_torrent", NAME.key)
        world.plan()
        world.plan(other, arguments='["b"]')
        assert (world.operation().arguments, world.operation(other).arguments) == ('["a"]', '["b"]')

    def test_the_longest_name_is_kept(self, world: LedgerWorld) -> None:
        """As long as a plan takes it, of characters that no database can compress, with an attempt."""
        key = "".join(chr(0x20000 + number**3 % 42_677) for number in range(1, 513))
        effect = "".join(chr(0x4E00 + number**3 % 20_747) for number in range((OPERATION_NAME_BYTES_MAX - len(key.encode())) // 3))
        name = OperationName(effect, key)
        world.bring(OperationStatus.DONE, name)
        assert (world.operation(name).name, len(world.attempts(name))) == (name, 1)

    def test_who_locks_sees_what_who_looks_sees(self, world: LedgerWorld) -> None:
        """In every state the locked operation is the found one, its attempt included."""
        for status in OperationStatus:
            name = new_name()
            number = world.bring(status, name)
            locked = world.lock(name)
            assert locked == world.operation(name)
            assert locked is not None
            assert (locked.attempt.number if locked.attempt is not None else 0) == number

    def test_the_database_has_a_clock_of_its_own(self, world: LedgerWorld) -> None:
        """Without a given instant its own counts, and what is read later has a later instant or the same."""
        before = world.backend.database.now()
        with world.writing() as tx:
            world.ledger.record_plan(tx, Plan(NAME, '["a"]', "digest-of-arguments", OWNER))
            operation = world.ledger.lock_operation(tx, NAME)
        assert operation is not None
        assert before <= operation.planned_at <= operation.now <= world.backend.database.now()

    def test_a_run_owns_its_operations_in_the_order_of_their_plans(self, world: LedgerWorld) -> None:
        """Only those of that run, each with its current attempt; those without an engine belong to no run."""
        for second, key in ((3, "third"), (1, "first"), (2, "second")):
            world.bring(OperationStatus.ATTEMPTING, new_name(key), now=after(second))
        world.plan(new_name("another's"), Owner("another", 0, "step", 1, None))
        world.plan(new_name("nobody's"), Owner("", 0, "", 1, None))
        listed = world.operations()
        assert [operation.name.key for operation in listed] == ["first", "second", "third"]
        assert listed == [world.operation(operation.name) for operation in listed]
        assert world.operations("") == []

    def test_another_claim_becomes_the_owner(self, world: LedgerWorld) -> None:
        """Who owns it can change it, and who owned it cannot; what the reconciler failed at stays counted."""
        number = world.bring(OperationStatus.UNKNOWN)
        world.count_reconcile(number)
        newer = msgspec.structs.replace(OWNER, token=4, worker=None)
        world.own(newer)
        assert (world.operation().owner, world.operation().reconciles) == (newer, 1)
        assert not world.change(Change.NOT_DONE, number)
        assert world.change(Change.NOT_DONE, number, owner=newer)

    def test_an_owner_of_another_run_takes_it_along(self, world: LedgerWorld) -> None:
        """It is listed with the run that acts for it."""
        world.plan()
        other = Owner("another", 2, "0.1/step:3", 1, 5)
        world.own(other)
        assert ([operation.owner for operation in world.operations("another")], world.operations()) == ([other], [])

    @pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
    def test_what_cannot_be_kept_is_refused_as_data(self, world: LedgerWorld, bad: Bad) -> None:
        """Both databases refuse it, say that it is the data, and keep nothing."""
        with pytest.raises(RefusedError) as refused:
            bad.act(world)
        assert refused.value.refusal is Refusal.DATA
        assert (world.find(), world.operations()) == (None, [])

    @pytest.mark.parametrize("result", BAD_RESULTS, ids=ascii)
    def test_a_result_that_cannot_be_kept_is_refused_as_data(self, world: LedgerWorld, result: str) -> None:
        """The attempt stays as it was, so that what came of it can be said another way."""
        number = world.bring(OperationStatus.ATTEMPTING)
        before = world.operation()
        token = world.attempts()[0].token
        with pytest.raises(RefusedError) as refused:
            world.change(Change.RESULT, number, result=result)
        assert refused.value.refusal is Refusal.DATA
        with pytest.raises(RefusedError) as refused:
            world.late(number, token, result)
        assert refused.value.refusal is Refusal.DATA
        assert world.operation() == before

    def test_long_and_foreign_texts_are_kept(self, world: LedgerWorld) -> None:
        """Characters of four bytes, quotes, backslashes and line ends come back as they were."""
        name = OperationName("ajouter_\U0001f3ac", "\U0001f3ac'\"\\ 100% {} :x $1 ?" * 8)
        arguments = '["\\u0000 is an escape \U0001f3ac ' + "x" * 100_000 + '"]'
        number = 0
        world.plan(name, arguments=arguments)
        assert world.change(Change.BEGIN, number, name=name)
        assert world.change(Change.NOT_DONE, 1, name=name, error=ERROR)
        operation = world.operation(name)
        assert (operation.name, operation.arguments, operation.error) == (name, arguments, ERROR)
