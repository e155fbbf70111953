"""A process that holds the write lock of a SQLite file for a while, with changes that have already reached the file.

Killed in the middle it leaves a hot journal, which the next one who opens the file must roll back.
"""

import sqlite3
import sys
import time


def begin(connection: sqlite3.Connection) -> bool:
    """Take the lock; False where somebody else's journal is just being rolled back, for which no time-out waits."""
    try:
        connection.execute("PRAGMA cache_size = 4")  # so few pages that the changes are spilled into the file before the commit
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    return True


def main() -> None:
    path, seconds = sys.argv[1:]
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    while not begin(connection):
        time.sleep(0.02)
    connection.executemany("INSERT INTO chaos_scratch (filler) VALUES (zeroblob(?))", [(4000,)] * 60)
    sys.stdout.write("held\n")
    sys.stdout.flush()
    time.sleep(float(seconds))
    connection.execute("DELETE FROM chaos_scratch")
    connection.execute("COMMIT")


if __name__ == "__main__":
    main()
