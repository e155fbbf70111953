"""What the doctor makes of the facts about files, tables and workers: each check is shown well, and failing. Nothing is read here."""

import json
import stat

import pytest

from outlast.finding import Level
from outlast.inspector import BoundedCount
from outlast.limits import DEAD_ROWS_WARNED, KEYS_BYTES_WARNED, KEYS_COUNTED_MAX, WAL_BYTES_WARNED
from outlast.native.doctor import budget, files, growth, lanes, plan, snapshots
from outlast.native.doctor.budget import ServerConnections
from outlast.native.doctor.files import DatabaseFiles, Entry
from outlast.native.doctor.growth import Keys
from outlast.native.doctor.snapshots import Cleaning, Holder
from outlast.native.upkeep import LaneRow

from .doctor_levels import levels, text

OK, WARNING, PROBLEM, NOT_APPLICABLE = Level.OK, Level.WARNING, Level.PROBLEM, Level.NOT_APPLICABLE
NONE = BoundedCount(0)

# --- 7: files --------------------------------------------------------------------------------------------------------------------
FOLDER = Entry("/data", stat.S_IFDIR | 0o755, is_usable=True)
FILE = Entry("/data/x.db", stat.S_IFREG | 0o600, is_usable=True)


def judged_files(folder=FOLDER, entry=FILE, file_system="ext4", **others):
    return files.judge(DatabaseFiles(folder, [entry], file_system, **others))


@pytest.mark.parametrize(
    ("mode", "is_usable", "level"), [(0o600, True, OK), (0o640, True, WARNING), (0o604, True, WARNING), (0o602, True, PROBLEM), (0o400, False, PROBLEM)]
)
def test_files_that_others_may_read_or_write_are_named(mode, is_usable, level):
    """What everybody may write is a problem, what others may read a warning, and so is a file that this user cannot use."""
    assert levels(judged_files(entry=Entry("/data/x.db", stat.S_IFREG | mode, is_usable))) == [level]


@pytest.mark.parametrize(("mode", "is_usable", "level"), [(0o755, True, OK), (0o1777, True, OK), (0o777, True, PROBLEM), (0o555, False, PROBLEM)])
def test_a_folder_in_which_everybody_may_replace_the_file_is_a_problem(mode, is_usable, level):
    """A sticky folder, such as /tmp, protects what is in it."""
    assert levels(judged_files(folder=Entry("/data", stat.S_IFDIR | mode, is_usable))) == [level]


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        ("ext4", OK),
        (None, OK),
        ("fuseblk", OK),
        ("nfs4", PROBLEM),
        ("cifs", PROBLEM),
        ("9p", PROBLEM),
        ("fuse.sshfs", PROBLEM),
        ("tmpfs", WARNING),
        ("overlay", WARNING),
    ],
)
def test_a_file_system_without_locks_or_without_a_future_is_named(kind, level):
    """On a network SQLite's locks do not work; memory and a container's layer are gone some day."""
    assert levels(judged_files(file_system=kind)) == [level]


def test_a_deleted_journal_is_a_warning():
    """Outlast leaves an empty journal; none at all means that another program commits in another way."""
    assert levels(judged_files(deletes_journal=True)) == [WARNING]


MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:30 / /data rw - nfs4 server:/export rw
23 22 0:31 / /data/local\\040disk rw - xfs /dev/sdb1 rw
24 21 0:32 / /over rw - tmpfs tmpfs rw
25 24 0:33 / /over rw shared:9 - btrfs /dev/sdc rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me", "ext4"),
        ("/", "ext4"),
        ("/data", "nfs4"),
        ("/data/x", "nfs4"),
        ("/database", "ext4"),
        ("/data/local disk/x", "xfs"),
        ("/over/there", "btrfs"),
    ],
)
def test_the_table_of_mounts_is_read_as_the_kernel_means_it(path, kind):
    """The longest mount point above a path counts, of two at one point the later one; names are escaped."""
    assert files.file_system_of(path, MOUNTS) == kind


def test_without_a_table_of_mounts_the_type_is_not_known():
    """On other systems there is none."""
    assert files.file_system_of("/data", "") is None


# --- 8: connections --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("found", "is_pooled", "level"),
    [
        (ServerConnections(100, 3, 10, 5), False, OK),
        (ServerConnections(100, 3, 0, 14), False, PROBLEM),
        (ServerConnections(100, 3, 40, 10), False, WARNING),
        (ServerConnections(100, 3, 0, 14), True, OK),
        (ServerConnections(100, 3, 0, 49), True, PROBLEM),
        (ServerConnections(10, 3, 1, 0), False, WARNING),
    ],
)
def test_a_fleet_that_does_not_fit_into_the_server_is_named(found, is_pooled, level):
    """Alone too large is a problem; with everybody else, or with one worker more, a warning. Behind a pooler a worker has two."""
    assert levels(budget.judge(found, pool_size=4, is_pooled=is_pooled)) == [level]


# --- 9: plan ---------------------------------------------------------------------------------------------------------------------
def postgres_plan(**node):
    return json.dumps([{"Plan": {"Node Type": "Nested Loop", "Plans": [{"Node Type": "CTE Scan", "CTE Name": "run"}, {"Relation Name": "run", **node}]}}])


@pytest.mark.parametrize(
    ("node", "is_fault"),
    [
        ({"Node Type": "Index Scan", "Index Name": "run_claim", "Index Cond": "(lane = 1)"}, False),
        ({"Node Type": "Index Only Scan", "Index Name": "run_claim", "Index Cond": "(lane = 1)"}, False),
        ({"Node Type": "Index Scan", "Index Name": "run_claim"}, True),
        ({"Node Type": "Index Scan", "Index Name": "run_pkey", "Index Cond": "(id = 1)"}, True),
        ({"Node Type": "Seq Scan"}, True),
    ],
)
def test_a_claim_that_is_not_served_by_its_index_is_a_problem(node, is_fault):
    """Another index, a walk over the whole index, or over the table: each costs more with every run."""
    found = plan.judge_postgres("probe_lanes", postgres_plan(**node), "run", "run_claim")
    assert levels(found) == [PROBLEM] * is_fault


def test_a_plan_without_the_table_is_a_problem():
    """A plan that could not be understood is not taken for a good one."""
    assert levels(plan.judge_postgres("probe_lanes", json.dumps([{"Plan": {"Node Type": "Result"}}]), "run", "run_claim")) == [PROBLEM]
    assert levels(plan.judge_sqlite("probe_lanes", ["SCAN json_each"], ["outlast_run"], "INDEX x")) == [PROBLEM]


@pytest.mark.parametrize(
    ("lines", "is_fault"),
    [
        (["SEARCH outlast_run USING INDEX outlast_run_claim (lane=? AND priority>?)"], False),
        (["SCAN json_each", "SEARCH run USING INDEX outlast_run_claim (lane=?)"], False),
        (["SCAN outlast_run"], True),
        (["SCAN outlast_run USING INDEX outlast_run_claim (lane=?"], True),
        (["SEARCH run USING INDEX outlast_run_worker (worker=?)"], True),
    ],
)
def test_a_plan_of_sqlite_is_read_too(lines, is_fault):
    """A scan is a fault whatever it scans by."""
    assert levels(plan.judge_sqlite("probe_lanes", lines, ["outlast_run", "run"], "INDEX outlast_run_claim (lane=?")) == [PROBLEM] * is_fault


def test_an_invalid_index_is_a_problem():
    """It is written at every change and serves nobody."""
    assert levels(plan.judge([], ["run_claim"], ["probe_lanes"])) == [PROBLEM]
    assert levels(plan.judge([], [], ["probe_lanes"])) == [OK]


# --- 10: snapshots ---------------------------------------------------------------------------------------------------------------
CLEAN = Cleaning(live_rows=1000, dead_rows=0, is_autovacuum_on=True)


@pytest.mark.parametrize(
    ("holder", "level"),
    [
        (Holder("session 1 (x)", 10.0, 5), OK),
        (Holder("session 1 (x)", None, 5), OK),
        (Holder("session 1 (x)", 4000.0, 5), WARNING),
        (Holder("replication slot x", None, 2_000_000), WARNING),
    ],
)
def test_an_old_snapshot_is_named(holder, level):
    """By its age, or where that is not to be seen by how much has happened since."""
    assert levels(snapshots.judge([holder], CLEAN)) == [level]


@pytest.mark.parametrize(
    ("cleaning", "level"),
    [
        (CLEAN, OK),
        (Cleaning(DEAD_ROWS_WARNED * 10, DEAD_ROWS_WARNED + 1, True), OK),
        (Cleaning(1000, DEAD_ROWS_WARNED, True), OK),
        (Cleaning(1000, DEAD_ROWS_WARNED + 1, True), WARNING),
        (Cleaning(1000, 0, False), WARNING),
        (Cleaning(1000, 0, True, ("run",)), WARNING),
    ],
)
def test_rows_that_nobody_removes_are_named(cleaning, level):
    """Dead rows count when they are many, and many beside the living; autovacuum that is off counts at once."""
    assert levels(snapshots.judge([], cleaning)) == [level]


@pytest.mark.parametrize(("size", "level"), [(None, NOT_APPLICABLE), (4 << 20, OK), (WAL_BYTES_WARNED + 1, WARNING)])
def test_a_log_that_a_reader_holds_is_named(size, level):
    """SQLite's counterpart of an old snapshot is a write-ahead log that cannot be emptied."""
    assert levels(snapshots.judge_log(size)) == [level]


# --- 11: lanes -------------------------------------------------------------------------------------------------------------------
def lane(version=1, *, is_served=False, paused_at=None, **counts):
    named = {name: BoundedCount(number) for name, number in counts.items()}
    return LaneRow("default", "greet", version, paused_at, is_served, **({"pending": NONE, "running": NONE, "waiting": NONE, "overdue": NONE} | named))


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (lane(), OK),
        (lane(pending=3, is_served=True), OK),
        (lane(pending=3, paused_at="since then"), OK),
        (lane(waiting=3), OK),
        (lane(pending=3), PROBLEM),
        (lane(waiting=3, overdue=1), PROBLEM),
        (lane(running=1), PROBLEM),
    ],
)
def test_runs_that_would_go_on_and_have_no_worker_are_a_problem(found, level):
    """Claimable, overdue, or held by a worker that is gone; not those that sleep, and not those of a paused queue."""
    assert levels(lanes.judge([found], ())) == [level]


def test_a_version_that_runs_still_need_is_a_warning():
    """An application that has another version of the kind only would strand them."""
    draining = lane(1, is_served=True, waiting=3)
    assert levels(lanes.judge([draining], {("greet", 2)})) == [WARNING]
    assert levels(lanes.judge([draining], {("greet", 1), ("greet", 2)})) == [OK]
    assert levels(lanes.judge([draining], {("other", 1)})) == [OK]
    assert levels(lanes.judge([lane(1, is_served=True)], {("greet", 2)})) == [OK]


def test_many_lanes_end_in_a_number():
    """A report stays readable, and what is left out is counted."""
    found = lanes.judge([lane(version, pending=1) for version in range(1, 31)], ())
    assert levels(found) == [PROBLEM] * 21
    assert "10 more lanes" in text(found)


# --- 12: growth ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("found", "level"),
    [
        (Keys(None, 8192), OK),
        (Keys(10_000_000, KEYS_BYTES_WARNED), OK),
        (Keys(90_000_000, KEYS_BYTES_WARNED + 1), WARNING),
        (Keys(KEYS_COUNTED_MAX, None), OK),
        (Keys(KEYS_COUNTED_MAX + 1, None), WARNING),
    ],
)
def test_keys_without_end_are_a_warning(found, level):
    """By their size where it is known, else by a bounded count."""
    assert levels(growth.judge_keys(found)) == [level]


def test_an_outbox_of_a_newer_version_is_not_passed_over():
    """Where there is none nothing can lag; where there is one this version says that it cannot read it."""
    assert levels(growth.judge_outbox(False)) == [NOT_APPLICABLE]
    assert levels(growth.judge_outbox(True)) == [WARNING]
