"""Claims, cancels and ends of the same runs at once, on real connections."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from msgspec.structs import replace

from outlast.database.transaction import Refusal, RefusedError
from outlast.native.postgres import postgres_backend
from outlast.run import CancelOutcome, RunStatus

from .postgres_world import WAIT, World, finish, opened

THREADS = 8
ROUNDS = 40


@pytest.fixture
def world(postgres_url: str) -> Iterator[World]:
    with opened(postgres_url) as world:
        yield world


def test_a_run_is_never_claimed_by_two(world: World, postgres_url: str) -> None:
    """Eight workers that claim the same two runs at once never both get one, round after round, and tokens only grow."""
    backend = postgres_backend(postgres_url, connections=THREADS)
    workers = [world.worker() for _ in range(THREADS)]
    run_ids = world.accept(2)
    gate = threading.Barrier(THREADS)

    def claim(worker_id: int) -> list[tuple[str, int]]:
        gate.wait(WAIT)
        with backend.database.transaction() as tx:
            backend.store.fence(tx, worker_id)
            return [run.hold for run in backend.store.claim_runs(tx, worker_id, run_ids, 2)()]

    try:
        with ThreadPoolExecutor(THREADS) as pool:
            for turn in range(1, ROUNDS + 1):
                claimed = [hold for holds in pool.map(claim, workers) for hold in holds]
                assert Counter(run_id for run_id, _ in claimed).most_common(1)[0][1] == 1
                assert {token for _, token in claimed} == {turn}
                put_back(postgres_url, turn)
    finally:
        backend.database.close()


def put_back(url: str, token: int) -> None:
    """Make every run claimable again as if it had been claimed and let go this often."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE outlast.run SET status = 'pending', worker = NULL, token = %s, due_at = now()", [token])


def test_claims_skip_what_is_locked_and_the_limit_counts_after_the_lock(world: World, postgres_url: str) -> None:
    """A locked run at the head costs no place: the claim takes the next ones at once."""
    worker_id = world.worker()
    run_ids = world.accept(3)
    with psycopg.connect(postgres_url) as stranger:
        stranger.execute("SELECT FROM outlast.run WHERE id = %s FOR UPDATE", [run_ids[0]])
        with world.database.transaction() as tx:
            world.store.fence(tx, worker_id)
            claimed = world.store.claim_runs(tx, worker_id, run_ids, 2)()
        stranger.rollback()
    assert [run.id for run in claimed] == run_ids[1:]


@pytest.mark.parametrize("is_cancel_first", [True, False])
def test_cancel_and_end_are_consistent_in_either_order(world: World, is_cancel_first: bool) -> None:
    """A cancel accepted first makes the end refused; an end committed first answers the cancel with already over."""
    worker_id = world.worker()
    (run,) = world.claim(worker_id, world.accept())
    cancel_done, end_done = threading.Event(), threading.Event()

    def cancel() -> CancelOutcome:
        if not is_cancel_first:
            assert end_done.wait(WAIT)
        with world.database.transaction() as tx:
            answer = world.store.request_cancel(tx, run.id, "changed my mind")
        cancel_done.set()
        assert answer is not None
        return answer[0]

    def end() -> int:
        if is_cancel_first:
            assert cancel_done.wait(WAIT)
        with world.database.transaction() as tx:
            world.store.fence(tx, worker_id)
            refused = world.store.commit_checkpoints(tx, [finish(run.hold)])
        end_done.set()
        return len(refused())

    with ThreadPoolExecutor(2) as pool:
        canceled, ended = pool.submit(cancel), pool.submit(end)
        outcome = (canceled.result(WAIT), ended.result(WAIT), world.status(run.id))
    first, second = (CancelOutcome.REQUESTED, 1, RunStatus.RUNNING), (CancelOutcome.ALREADY_OVER, 0, RunStatus.SUCCEEDED)
    assert outcome == (first if is_cancel_first else second)


def test_racing_cancels_and_ends_never_end_a_canceled_run_as_succeeded(world: World) -> None:
    """Whatever comes first, an accepted cancel and a success exclude each other."""
    worker_id = world.worker()
    runs = world.claim(worker_id, world.accept(60))
    gate = threading.Barrier(2)

    def cancel_all() -> dict[str, CancelOutcome]:
        outcomes = {}
        for run in runs:
            gate.wait(WAIT)
            try:
                with world.database.transaction() as tx:
                    answer = world.store.request_cancel(tx, run.id, "stop")
                assert answer is not None
                outcomes[run.id] = answer[0]
            except RefusedError:  # it met the other's lock and would be tried again
                outcomes[run.id] = CancelOutcome.ALREADY_OVER
        return outcomes

    def end_all() -> dict[str, bool]:
        ended = {}
        for run in runs:
            gate.wait(WAIT)
            try:
                with world.database.transaction() as tx:
                    world.store.fence(tx, worker_id)
                    refused = world.store.commit_checkpoints(tx, [finish(run.hold)])
                ended[run.id] = not refused()
            except RefusedError:
                ended[run.id] = False
        return ended

    with ThreadPoolExecutor(2) as pool:
        canceled, ended = pool.submit(cancel_all), pool.submit(end_all)
        outcomes, successes = canceled.result(WAIT), ended.result(WAIT)
    for run in runs:
        assert (outcomes[run.id] is CancelOutcome.REQUESTED) != successes[run.id]
        assert (world.status(run.id) is RunStatus.SUCCEEDED) == successes[run.id]


def test_one_key_makes_one_run_for_callers_at_once(world: World, postgres_url: str) -> None:
    """Eight callers that use one key at once all get the same run, and exactly one of them made it."""
    backend = postgres_backend(postgres_url, connections=THREADS)
    gate = threading.Barrier(THREADS)

    def accept(turn: int) -> tuple[str, bool]:
        run = replace(world.new_run(), idempotency_key=f"key {turn}")
        gate.wait(WAIT)
        for _ in range(100):
            try:
                with backend.database.transaction() as tx:
                    (accepted,) = backend.store.record_runs(tx, [run])()
                return accepted.run_id, accepted.created
            except RefusedError as error:  # on a slow machine the winner's commit takes longer than a lock is waited for
                if error.refusal is not Refusal.BUSY:
                    raise
        pytest.fail("the key was locked for as long as it was tried")

    try:
        with ThreadPoolExecutor(THREADS) as pool:
            for turn in range(10):
                answers = list(pool.map(accept, [turn] * THREADS))
                assert len({run_id for run_id, _ in answers}) == 1
                assert [created for _, created in answers].count(True) == 1
    finally:
        backend.database.close()
