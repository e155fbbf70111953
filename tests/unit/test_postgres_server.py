"""The PostgreSQL launcher: what it starts is real, survives what it should, and leaves nothing behind."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlsplit

import psycopg
import pytest

from outlast.clock import SystemClock
from outlast.testing import postgres_binaries
from outlast.testing.postgres_binaries import PostgresBinaries, PostgresCommandError, PostgresNotFoundError, find_binaries
from outlast.testing.postgres_server import ADDRESS_VARIABLE, FAST_SETTINGS, PostgresServer
from outlast.testing.shared_server import SharedServer

SOURCE = str(Path(postgres_binaries.__file__).parents[2])
HOLD = "from pathlib import Path; import sys; from outlast.testing.shared_server import SharedServer; s = SharedServer(Path(sys.argv[1]));"
OWN = "from outlast.testing.postgres_server import FAST_SETTINGS, PostgresServer; s = PostgresServer(is_private=True, settings=FAST_SETTINGS);"


@pytest.fixture
def server():
    """A server of the test's own."""
    with PostgresServer(is_private=True, settings=FAST_SETTINGS) as server:
        yield server


def value(url, query):
    """What one query answers on a connection of its own."""
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query).fetchone()[0]


def is_listening(url):
    """Whether anything accepts connections at the address."""
    address = urlsplit(url)
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex((address.hostname, address.port)) == 0


def wait_until_gone(url):
    """Return when nothing listens there any more; fail after a time that is far beyond what an ending takes."""
    deadline = SystemClock().monotonic() + 30
    pause = threading.Event()
    while is_listening(url):
        assert SystemClock().monotonic() < deadline, f"the server at {url} outlived its holders"
        pause.wait(0.02)


def holder(program, *arguments):
    """A process that starts a server and waits to be ended, and the server's address."""
    process = start_holder(program, *arguments)
    return process, process.stdout.readline().strip()


def start_holder(program, *arguments):
    """A process that starts a server, will print its address and then waits to be ended."""
    command = [sys.executable, "-c", f"{program} import sys", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": SOURCE})


def end(process, number):
    """End a holder by a signal and take it off the process table."""
    process.send_signal(number)
    process.communicate(timeout=30)


def test_databases_are_separate_and_copies_have_their_templates_rows(server):
    """A database made from a template has its rows, and one made without has none."""
    original = server.create_database("original")
    with psycopg.connect(original) as connection:
        connection.execute("CREATE TABLE word (text text)")
        connection.execute("INSERT INTO word VALUES ('kept')")
    copy, empty = server.create_database("copy", template="original"), server.create_database("empty")
    assert value(copy, "SELECT text FROM word") == "kept"
    assert value(empty, "SELECT count(*) FROM pg_tables WHERE tablename = 'word'") == 0


def test_dropping_a_database_ends_who_is_connected_to_it(server):
    """A test's database goes away even if the test left a connection open."""
    url = server.create_database("short_lived")
    with psycopg.connect(url) as connection:
        server.drop_database("short_lived")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_restart_keeps_address_and_committed_rows(server, mode):
    """After a restart, polite or not, committed rows are there under the same address."""
    url = server.url("postgres")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE word AS SELECT 'kept' AS text")
    started = value(url, "SELECT pg_postmaster_start_time()")
    server.restart(mode)
    assert value(url, "SELECT text FROM word") == "kept"
    assert value(url, "SELECT pg_postmaster_start_time()") > started


def test_settings_are_honest_unless_told_otherwise():
    """Without settings commits are durable; a setting that is given wins."""
    with PostgresServer(is_private=True, settings={"max_connections": "17"}) as server:
        settings = {name: value(server.url("postgres"), f"SHOW {name}") for name in ("fsync", "synchronous_commit", "full_page_writes", "max_connections")}
    assert settings == {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "17"}


def test_server_listens_on_loopback_only_and_not_as_root(server):
    """Nobody from outside can reach the server, and it has no rights beyond its own folder."""
    assert value(server.url("postgres"), "SHOW listen_addresses") == "127.0.0.1"
    assert value(server.url("postgres"), "SHOW unix_socket_directories") == ""
    assert server.data_folder.stat().st_uid != 0


def test_stop_leaves_no_server_and_no_folder():
    """After `stop` nothing listens, nothing is on the disk, and stopping again is allowed."""
    server = PostgresServer(is_private=True, settings=FAST_SETTINGS)
    url, home = server.start(), server.data_folder.parent
    server.stop()
    server.stop()
    assert not is_listening(url)
    assert not home.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_server_ends_when_its_owner_is_killed(number):
    """A process that is killed leaves no server behind."""
    process, url = holder(f"{OWN} print(s.start(), flush=True); input();")
    assert is_listening(url)
    end(process, number)
    wait_until_gone(url)


def test_failed_start_names_the_cause_and_leaves_nothing(tmp_path, monkeypatch):
    """A setting that the server refuses is an error with its words, and the folder is removed."""
    homes = []
    monkeypatch.setattr("outlast.testing.postgres_server._make_home", lambda: homes.append(_open_folder()) or homes[0])
    with pytest.raises(PostgresCommandError) as caught:
        PostgresServer(is_private=True, settings={"no_such_setting": "1"}).start()
    assert "no_such_setting" in "".join(caught.value.__notes__)
    assert not homes[0].exists()


def _open_folder():
    return Path(mkdtemp(prefix="outlast-postgres-"))


def test_given_address_is_used_and_left_alone(monkeypatch):
    """A server named by the environment is neither started nor stopped nor restarted, and databases keep its settings."""
    monkeypatch.setenv(ADDRESS_VARIABLE, "postgresql://someone@db.example:5433/main?sslmode=disable")
    server = PostgresServer()
    assert server.start() == "postgresql://someone@db.example:5433/main?sslmode=disable"
    assert server.url("other") == "postgresql://someone@db.example:5433/other?sslmode=disable"
    with pytest.raises(RuntimeError, match="is_private"):
        server.restart()
    server.stop()
    assert server.is_given
    assert not PostgresServer(is_private=True).is_given


def test_missing_programs_are_named_with_the_remedy(monkeypatch):
    """Without PostgreSQL the error says what to install."""
    for place in ("_in_wheel", "_on_path", "_newest_of_debian"):
        monkeypatch.setattr(postgres_binaries, place, lambda: None)
    with pytest.raises(PostgresNotFoundError, match="OUTLAST_TEST_POSTGRES"):
        find_binaries()


@pytest.mark.parametrize("place", ["_on_path", "_newest_of_debian"])
def test_places_are_asked_in_order(monkeypatch, tmp_path, place):
    """Where the wheel has nothing, PATH and then Debian's folders are asked."""
    for name in ("_in_wheel", "_on_path", "_newest_of_debian"):
        monkeypatch.setattr(postgres_binaries, name, lambda found=tmp_path if name == place else None: found)
    assert find_binaries() == tmp_path


def test_programs_in_a_closed_folder_are_copied_for_the_servers_user(monkeypatch):
    """Programs that only we may reach still serve: they and their libraries are copied to the server's folder."""
    monkeypatch.setattr(postgres_binaries, "_is_reachable", lambda folder: os.geteuid() != 0)
    with PostgresServer(is_private=True, settings=FAST_SETTINGS) as server:
        name = server.create_database("made_by_a_copied_program")
        copied = (server.data_folder.parent / "installation").exists()
        assert value(name, "SELECT 1") == 1
    assert copied == (os.geteuid() == 0)


def test_program_that_fails_is_an_error_with_its_words(server, tmp_path_factory):
    """What a program printed is in the error."""
    home = _open_folder()
    with pytest.raises(PostgresCommandError, match="no_such_option"):
        PostgresBinaries(find_binaries(), home).run("initdb", "--no_such_option")
    home.rmdir()
    with pytest.raises(PostgresCommandError, match="already exists"):
        server.create_database("postgres")


def test_shared_server_is_one_and_ends_with_its_last_holder(tmp_path):
    """Two holders get the same server; it stays for the second, and is gone when that one has left."""
    first, second = SharedServer(tmp_path), SharedServer(tmp_path)
    url = first.join()
    assert second.join() == url
    first.leave()
    assert value(url, "SELECT 1") == 1
    second.leave()
    assert not is_listening(url)


def test_shared_server_is_started_once_by_many_at_once(tmp_path):
    """However many processes ask at the same moment, one server is started."""
    holders = [start_holder(f"{HOLD} print(s.join(), flush=True); input();", str(tmp_path)) for _ in range(4)]
    urls = {process.stdout.readline().strip() for process in holders}
    for process in holders:
        end(process, signal.SIGKILL)
    assert len(urls) == 1
    wait_until_gone(*urls)


def test_shared_server_outlives_a_killed_holder_and_not_the_last(tmp_path):
    """A killed process counts as one that has left, and only as that."""
    shared = SharedServer(tmp_path)
    process, url = holder(f"{HOLD} print(s.join(), flush=True); input();", str(tmp_path))
    assert shared.join() == url
    end(process, signal.SIGKILL)
    assert value(url, "SELECT 1") == 1
    shared.leave()
    assert not is_listening(url)


def test_shared_server_is_started_anew_after_the_last_holder_left(tmp_path):
    """A folder's server that has ended is no obstacle to the next one."""
    shared = SharedServer(tmp_path)
    shared.join()
    shared.leave()
    url = shared.join()
    assert value(url, "SELECT 1") == 1
    shared.leave()


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="capability: only Linux tells who is at the other end of a socket")
def test_shared_server_ends_when_its_keeper_is_killed(tmp_path):
    """Without its keeper nobody would ever stop the server, so its guard does; and the next one who asks gets a new one."""
    shared = SharedServer(tmp_path)
    url = shared.join()
    keeper, _, _ = struct.unpack("3i", shared._connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    os.kill(keeper, signal.SIGKILL)
    wait_until_gone(url)
    shared.leave()
    assert value(shared.join(), "SELECT 1") == 1
    shared.leave()


def test_shared_server_that_cannot_start_says_why(tmp_path):
    """A keeper's error reaches whoever asked for the server."""
    with pytest.raises(RuntimeError, match="no_such_setting"):
        SharedServer(tmp_path, settings={"no_such_setting": "1"}).join()
