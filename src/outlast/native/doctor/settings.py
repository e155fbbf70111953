"""Settings of the database that decide about durability and about connections that last. Pure."""

from dataclasses import dataclass

from outlast.finding import Check, Finding, all_or_ok, problem, warning

_SYNCHRONOUS_FULL = 2


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """As a session of this role sees them."""

    fsync: str
    full_page_writes: str
    synchronous_commit: str
    isolation: str
    """`default_transaction_isolation`."""
    idle_session_seconds: float
    """`idle_session_timeout`; 0 is none."""
    is_standby: bool


def judge_postgres(found: PostgresSettings) -> list[Finding]:
    faults = []
    if found.is_standby:
        faults.append(problem(Check.SETTINGS, "the server is a standby, where nothing can be written", "give the address of the primary"))
    if found.fsync != "on":
        faults.append(
            problem(Check.SETTINGS, "fsync is off: a power cut can lose or damage everything that was acknowledged", "set fsync = on and restart the server")
        )
    if found.full_page_writes != "on":
        text = "full_page_writes is off: a power cut can leave pages torn, unless the file system writes them whole"
        faults.append(warning(Check.SETTINGS, text, "set full_page_writes = on, or be sure of the file system"))
    if found.synchronous_commit in ("off", "local"):
        text = f"synchronous_commit is {found.synchronous_commit}: outlast sets it to on for its own transactions, and your own can still be lost"
        faults.append(warning(Check.SETTINGS, text, "set synchronous_commit = on for this role or database (ALTER ROLE ... SET)"))
    if found.isolation != "read committed":
        text = f"default_transaction_isolation is {found.isolation}: outlast begins its own with READ COMMITTED, and your own may have to be repeated"
        faults.append(warning(Check.SETTINGS, text, "leave the default at 'read committed', and raise it in the transactions that need it"))
    if found.idle_session_seconds:
        text = f"idle_session_timeout is {found.idle_session_seconds:g} s: the server ends the connections of the listener and of the lock that proves life"
        faults.append(warning(Check.SETTINGS, text, "set idle_session_timeout = 0 for this role (ALTER ROLE ... SET)"))
    return all_or_ok(faults, Check.SETTINGS, f"fsync on, synchronous_commit {found.synchronous_commit}, isolation {found.isolation}")


def judge_sqlite(synchronous: int) -> list[Finding]:
    """`synchronous` as the pragma returns it on a connection of outlast."""
    if synchronous >= _SYNCHRONOUS_FULL:
        return all_or_ok([], Check.SETTINGS, "synchronous is FULL: every commit is on the disk before it is acknowledged")
    text = f"synchronous is {synchronous}, less than FULL: a power cut can lose what was acknowledged"
    return [problem(Check.SETTINGS, text, "use a Python whose SQLite honours PRAGMA synchronous = FULL")]
