"""A disk that is full to the last byte under load, and has room again: nobody is told a falsehood, and work resumes."""

from outlast.testing.postgres_server import FAST_SETTINGS, PostgresServer

from .outage import Outage, pause
from .small_disk import SmallDisk
from .supervised import Supervised

LEASE_SECONDS = 4


def ride_out(outage: Outage, disk: SmallDisk, after_room=lambda: None) -> None:
    """Fill the disk under callers and workers until callers were refused, give the room back, and see that all goes on."""
    for _ in range(2):
        outage.work("--lease", "30s")
    once, journeys = outage.call("once"), outage.call("journey", "--callers", "1", "--pause", "0.2", "--insists")
    once.wait_for("accepted", 20)
    journeys.wait_for("accepted", 5)
    disk.fill()
    outage.wait_until("a caller was told that it cannot be stored", lambda: bool(once.told("refused", "unknown")))
    disk.free()
    after_room()
    once.wait_for("accepted", 10)
    journeys.wait_for("accepted", 5)
    outage.assert_whole()


def test_a_full_disk_of_the_server_is_waited_out(small_disk: SmallDisk, tmp_path):
    """While the server can write nothing callers are refused in their time; when there is room, or it was started again, everything goes on."""
    data = small_disk.folder / "data"
    data.mkdir()
    with PostgresServer(is_private=True, settings={**FAST_SETTINGS, "max_wal_size": "32MB", "min_wal_size": "32MB"}, data=data) as server:
        server.create_database("app")
        with Outage(server.url("app"), tmp_path) as outage:
            ride_out(outage, small_disk, server.resume)  # without room for its log a server stops by itself, and then stays down
        assert "No space left on device" in server.log


def test_a_supervisor_kills_nobody_for_a_full_disk(small_disk: SmallDisk, tmp_path):
    """While the disk is full for longer than the lease the children of `outlast worker` cannot renew it, live on, and work when there is room."""
    url = f"sqlite:///{small_disk.folder / 'outlast.db'}"
    with Outage(url, tmp_path) as outage:
        caller = outage.call("journey", "--callers", "1", "--pause", "0.2", "--insists")
        with Supervised(url, tmp_path, lease=f"{LEASE_SECONDS}s") as supervised:
            outage.wait_until("both execute", lambda: {body["pid"] for body in outage.bodies()} >= set(supervised.children))
            small_disk.fill()
            pause(3 * LEASE_SECONDS)
            small_disk.free()
            caller.wait_for("accepted", 5)
            outage.assert_whole()
            supervised.stop()
            assert [facts for facts in supervised.said if facts["event"] in ("worker_process_silent", "worker_process_ended")] == []
            assert outage.query("SELECT count(*) FROM {worker}") == [(2,)], "a worker was judged by one that could not renew either"


def test_a_full_disk_below_a_file_is_waited_out(small_disk: SmallDisk, tmp_path):
    """While the file cannot grow callers are refused in their time and workers say so once; when there is room everything goes on."""
    with Outage(f"sqlite:///{small_disk.folder / 'outlast.db'}", tmp_path) as outage:
        ride_out(outage, small_disk)
        outage.wait_until_logged("the database takes writes again")
        for worker in outage.workers:
            assert len([line for line in worker.complained if "the database takes no writes" in line]) <= 1, worker.report()
