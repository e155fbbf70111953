"""Snapshots: does anybody keep the database from cleaning up, and is it cleaned up at all? Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from outlast.finding import Check, Finding, all_or_ok, not_applicable, warning
from outlast.limits import DEAD_ROWS_WARNED, SNAPSHOT_AGE_WARNED, SNAPSHOT_TRANSACTIONS_WARNED, WAL_BYTES_WARNED

_DEAD_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody whose snapshot keeps dead rows from being removed."""

    name: str
    """`session 4711 (psql)`, `prepared transaction x`, `replication slot y`."""
    seconds: float | None
    """For how long; None where the role may not see it."""
    transactions: int
    """How many transactions have begun since."""


@dataclass(frozen=True, slots=True)
class Cleaning:
    """How the tables are cleaned up."""

    live_rows: int
    dead_rows: int
    """Of the table of runs, as the server estimates them."""
    is_autovacuum_on: bool
    tables_without: tuple[str, ...] = ()
    """Tables of outlast for which it was switched off."""


def judge(holders: Sequence[Holder], cleaning: Cleaning) -> list[Finding]:
    faults = [_judge_holder(holder) for holder in holders if _is_old(holder)]
    if not cleaning.is_autovacuum_on:
        text = "autovacuum (or track_counts, which it needs) is off: dead rows stay, and claims get slower with each of them"
        faults.append(warning(Check.SNAPSHOTS, text, "set autovacuum = on and track_counts = on"))
    elif cleaning.tables_without:
        text = f"autovacuum is off for {', '.join(cleaning.tables_without)}"
        faults.append(warning(Check.SNAPSHOTS, text, "ALTER TABLE outlast.<name> RESET (autovacuum_enabled)"))
    if cleaning.dead_rows > DEAD_ROWS_WARNED and cleaning.dead_rows > _DEAD_SHARE * cleaning.live_rows:
        text = f"the table of runs has {cleaning.dead_rows:,} dead rows beside {cleaning.live_rows:,} living ones"
        faults.append(warning(Check.SNAPSHOTS, text, "end what holds an old snapshot, then VACUUM outlast.run"))
    oldest = f"the oldest snapshot is of {_age(holders[0])}" if holders else "nobody holds a snapshot"
    return all_or_ok(faults, Check.SNAPSHOTS, f"{oldest}; {cleaning.dead_rows:,} dead rows beside {cleaning.live_rows:,} living runs; autovacuum is on")


def judge_log(wal_bytes: int | None) -> list[Finding]:
    """On SQLite: the size of the write-ahead log, or None without one."""
    if wal_bytes is None:
        return [not_applicable(Check.SNAPSHOTS, "the rollback journal keeps nothing for readers")]
    if wal_bytes > WAL_BYTES_WARNED:
        text = f"the write-ahead log has grown to {wal_bytes >> 20:,} MiB: a reader that never ends keeps it from being emptied"
        return [warning(Check.SNAPSHOTS, text, "end the program that keeps a transaction open on the file")]
    return all_or_ok([], Check.SNAPSHOTS, f"the write-ahead log has {wal_bytes:,} bytes")


def _is_old(holder: Holder) -> bool:
    is_long = holder.seconds is not None and holder.seconds > SNAPSHOT_AGE_WARNED.total_seconds()
    return is_long or holder.transactions > SNAPSHOT_TRANSACTIONS_WARNED


def _judge_holder(holder: Holder) -> Finding:
    text = f"{holder.name} has held a snapshot for {_age(holder)}: no row that died since can be removed, and claims get slower"
    return warning(Check.SNAPSHOTS, text, "end it (pg_terminate_backend, ROLLBACK PREPARED, pg_drop_replication_slot), and keep transactions short")


def _age(holder: Holder) -> str:
    since = f"{holder.transactions:,} transactions"
    return f"{since} (for how long, this role may not see)" if holder.seconds is None else f"{holder.seconds:.0f} s and {since}"
