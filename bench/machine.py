"""The facts without which a figure means nothing: machine, versions, settings. No names of hosts and no paths."""

import os
import platform
import shutil
import statistics
import subprocess
import time
from importlib.metadata import version

import psycopg

from .contender import CONTENDERS, openworkflow_versions, python_versions

SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "max_connections")
COMMITS = 200


def describe(url: str) -> dict[str, str]:
    """Return the facts in the order in which they are told."""
    with psycopg.connect(url, autocommit=True) as connection:
        settings = {name: _show(connection, name) for name in SETTINGS}
        return {
            "cores": str(len(os.sched_getaffinity(0))),
            "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
            "load average before": f"{os.getloadavg()[0]:.1f} (what else ran here then)",
            "PostgreSQL": f"{_show(connection, 'server_version')}, on the same cores, over TCP on loopback",
            "settings": ", ".join(f"{name} = {value}" for name, value in settings.items()),
            "one durable commit": f"{_commit_milliseconds(connection):.2f} ms (median of {COMMITS})",
            "Python": f"{platform.python_version()}, psycopg {version('psycopg')}",
            "Node": _node_version(),
            "peers": ", ".join(f"{name} {exact}" for name, exact in _peer_versions()),
        }


def _peer_versions() -> list[tuple[str, str]]:
    pinned = [openworkflow_versions(), *(python_versions(contender.environment) for contender in CONTENDERS.values() if contender.environment)]
    return [each for versions in pinned for each in versions.items()]


def _show(connection: psycopg.Connection, name: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
    return str(row[0]) if row else "unknown"


def _commit_milliseconds(connection: psycopg.Connection) -> float:
    """Show whether commits reach a disk here: well below 0.1 ms somebody on the way only says that they do."""
    connection.execute("CREATE TABLE IF NOT EXISTS public.bench_commit (number integer)")
    taken = []
    for number in range(COMMITS):
        begun = time.perf_counter()
        connection.execute("INSERT INTO public.bench_commit VALUES (%s)", [number])
        taken.append((time.perf_counter() - begun) * 1000)
    connection.execute("DROP TABLE public.bench_commit")
    return statistics.median(taken)


def _node_version() -> str:
    if not shutil.which("node"):
        return "not there"
    return subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip().removeprefix("v")
