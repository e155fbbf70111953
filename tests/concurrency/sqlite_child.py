"""A second process on an SQLite file. It obeys one line at a time from its input and answers each with one line."""

import fcntl
import json
import os
import sys
from pathlib import Path

from outlast import ids
from outlast.native.sqlite import sqlite_backend
from outlast.native.store import NewRun


def main() -> None:
    file, journal = sys.argv[1:]
    backend = sqlite_backend(Path(file), journal=journal)  # type: ignore[arg-type]  # one of the two, by the caller
    held = None
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        answer: object = None
        if command == "hold":
            backend.liveness.hold(arguments[0])
        elif command == "try_lock":
            descriptor = os.open(arguments[0], os.O_RDWR)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                answer = True
            except OSError:
                answer = False
            os.close(descriptor)
        elif command == "nonce":
            answer = ids.process_nonce()
        elif command == "enqueue":
            with backend.database.transaction() as tx:
                runs = [NewRun(ids.run_id(), arguments[0], "import_asset", 1, 0, None, None, 1, "1", "d", None, "[]", "{}")]
                answer = backend.store.record_runs(tx, runs)()[0].run_id
        elif command == "begin":
            held = backend.database.transaction()
            held.__enter__()
        elif command == "commit" and held is not None:
            held.__exit__(None, None, None)
        elif command == "claim":
            worker, rounds, lane = arguments
            answer = []
            for _ in range(rounds):
                with backend.database.transaction() as tx:
                    seen = backend.store.probe_lanes(tx, [lane], 4, with_suspects=True)()
                with backend.database.transaction() as tx:
                    backend.store.fence(tx, worker)
                    claimed = backend.store.claim_runs(tx, worker, [candidate.run_id for candidate in seen], 2)()
                answer.extend([run.id, run.token] for run in claimed)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
