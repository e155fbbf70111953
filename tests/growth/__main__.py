"""The full form of the growth tests: plans and paces with a million finished runs, a million sleeping and the rest.

    python -m tests.growth                 a server of its own, some minutes
    python -m tests.growth --share 0.1     a tenth of everything

It ends with 1 when a plan is wrong or a statement touches more than it may, or when a pace falls below its share of the
empty database's. The paces are those of the store alone, on this machine with `fsync` off: only their ratio says something.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from outlast.native.postgres import postgres_backend
from outlast.testing.postgres_server import FAST_SETTINGS, PostgresServer

from .filling import KINDS, VERSIONS, Sizes, fill
from .growth import CLAIMED_UNDER_SNAPSHOT, WOKEN_UNDER_SNAPSHOT, Grown, examine, snapshot

FULL = Sizes(finished=1_000_000, asleep=1_000_000, stranded=100_000, pending=100_000, crowd=20_000, due=12_000)
TURNS, CLAIMED, WOKEN = 8, 400, 500
"""Each database has its turn, again and again, so that whatever else the machine does meets them alike."""
SHARE_LEAST = 0.7
"""Of the empty database's pace. The store alone feels another level in an index and pages that are not in memory more than a
worker does, whose 90 % the benchmark measures; a plan that went wrong is slower by far more than this."""

Paces = dict[str, tuple[float, float]]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextmanager
def grown(server: PostgresServer, name: str, sizes: Sizes) -> Iterator[Grown]:
    """Give a filled database, and the lanes of one queue in it."""
    began = time.monotonic()
    url = server.create_database(name)
    backend = postgres_backend(url)
    try:
        backend.schema.ensure("create")
        lanes = fill(url, sizes)
        say(f"{name}: filled in {time.monotonic() - began:.0f} s")
        yield Grown(url, backend, lanes[: KINDS * VERSIONS], lanes)
    finally:
        backend.liveness.close()
        backend.wakes.close()
        backend.database.close()


def judged(label: str, faults: list[str]) -> bool:
    say(f"plans {label}: {'as they should be' if not faults else ''}")
    for fault in faults:
        say(f"  {fault}")
    return not faults


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.growth", description="plans and paces in a large database")
    parser.add_argument("--share", type=float, default=1.0, help="of the full sizes (default: 1)")
    share = parser.parse_args().share
    finished, asleep, stranded = (int(count * share) for count in (FULL.finished, FULL.asleep, FULL.stranded))
    sizes = Sizes(finished, asleep, stranded, pending=FULL.pending, crowd=FULL.crowd, due=FULL.due)
    with (
        PostgresServer(is_private=True, settings=FAST_SETTINGS) as server,
        grown(server, "empty", Sizes(pending=FULL.pending, crowd=FULL.crowd, due=FULL.due)) as empty,
        grown(server, "large", sizes) as large,
    ):
        is_good = judged("of a database that was never analysed", examine(large))
        for each in (empty, large):
            with psycopg.connect(each.url, autocommit=True) as connection:
                connection.execute("ANALYZE")
        is_good &= judged("with statistics", examine(large))
        is_good &= judged("of a worker that serves every lane", examine(large, every_lane=True))
        paces = measured({"empty": empty, "large": large}, TURNS, queue=1)
        with snapshot(large.url):
            large.claim(CLAIMED_UNDER_SNAPSHOT)
            large.wake(WOKEN_UNDER_SNAPSHOT)
            is_good &= judged("under an old snapshot", examine(large, leftovers=CLAIMED_UNDER_SNAPSHOT))
            paces |= measured({"large, under an old snapshot": large}, 2, queue=0)
    return 0 if is_good and is_fast(paces) else 1


def measured(databases: dict[str, Grown], turns: int, *, queue: int) -> Paces:
    """Return claims and wakes a second, the medians of all turns. Each time another queue is used up."""
    taken: dict[str, list[tuple[float, float]]] = {label: [] for label in databases}
    for _ in range(turns):
        for label, each in databases.items():
            taken[label].append((each.claim(CLAIMED, queue=queue), each.wake(WOKEN)))
    return {label: (statistics.median(claims for claims, _ in pairs), statistics.median(wakes for _, wakes in pairs)) for label, pairs in taken.items()}


def is_fast(paces: Paces) -> bool:
    """Print the paces and tell whether the large database keeps its share."""
    empty_claims, empty_wakes = paces["empty"]
    for label, (claims, wakes) in paces.items():
        say(f"{label}: {claims:,.0f} claims/s ({claims / empty_claims:.2f} x), {wakes:,.0f} wakes/s ({wakes / empty_wakes:.2f} x)")
    claims, wakes = paces["large"]
    if claims >= SHARE_LEAST * empty_claims and wakes >= SHARE_LEAST * empty_wakes:
        return True
    say(f"MISSED: at least {SHARE_LEAST:.0%} of the empty database's pace")
    return False


if __name__ == "__main__":
    sys.exit(main())
