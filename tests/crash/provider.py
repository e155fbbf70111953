"""A provider in a process of its own that is never killed: orders come by HTTP on loopback, and all that happens to one is written down.

Run as `python provider.py FOLDER [--database URL]`; it says `listening ORDERS CONTROL`. With `--database` it looks, when an order
arrives and before anything is done, at what the ledger has committed, and writes that down beside the order: what was sent
without a durable attempt is found out there, whatever is written later.

It knows two kinds of orders: `keyed` ones are executed once a provider key, and refused when their token is older than the greatest
seen for the key; the others as often as they arrive. How an order is treated is said beforehand in a word, and what is held is
let go by its tag:

    do           execute, answer                          reject, fail   execute nothing, and say so; say nothing of use
    slow TAG     wait, execute, answer                    drop           execute, and close the connection
    hold TAG     execute, wait, answer                    lose           execute nothing, and close the connection
    twice        as if it had been delivered twice        late [TAG] TAG (wait,) close the connection, wait, execute
    mistype      execute, and answer nonsense

and a look in one of these: `tell` the truth, `miss` what is there, `wonder`, `fail`, `revoke` what has not been done; `tell TAG` looks
and answers later.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ledger_rows import find_attempts  # beside this file: a program's own folder is on its path

HOLD_SECONDS_MAX = 300.0
"""How long an order is held that nobody lets go."""
Facts = dict[str, Any]


@dataclass
class Orders:
    """What is known of one name: how the next requests are treated, and what was done."""

    words: deque[str] = field(default_factory=deque)
    look_words: deque[str] = field(default_factory=deque)
    released: dict[str, threading.Event] = field(default_factory=lambda: defaultdict(threading.Event))
    """What holds orders and looks, by the tag in their word."""
    receipts: list[Facts] = field(default_factory=list)
    """One for each execution."""
    greatest_token: dict[str, int] = field(default_factory=dict)
    answers: dict[str, Facts] = field(default_factory=dict)
    """Of keyed orders, by key."""
    voided_token: int = -1


class Provider:
    """The state, under one lock, and the log."""

    def __init__(self, folder: Path, database: str = "") -> None:
        self._database = database
        self._descriptor = os.open(folder / "provider.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._lock = threading.Lock()
        self._orders: dict[str, Orders] = defaultdict(Orders)
        self._requests = 0

    def note(self, event: str, /, **facts: Any) -> None:
        """One line in one write: what is in the file happened."""
        os.write(self._descriptor, json.dumps({"event": event, "at": time.time(), **facts}).encode() + b"\n")

    # --- orders --------------------------------------------------------------------------------------------------------
    def order(self, order: Facts) -> Facts | None:
        """Treat an order as was said for its name; None for an order that gets no answer."""
        seen = find_attempts(self._database, order["key"]) if self._database else None
        with self._lock:
            self._requests += 1
            facts = {"request": self._requests, **order}
            orders = self._orders[order["name"]]
            word = orders.words.popleft() if orders.words else "do"
        self.note("arrived", word=word, seen=seen, **facts)
        what, *tags = word.split()
        match what:
            case "reject":
                return self._answered(facts, {"error": "rejected"})
            case "fail":
                return self._answered(facts, {"error": "broken"})
            case "lose":
                return self._unanswered(facts)
            case "late":
                *before, after = tags
                self._hold(orders, *before)
                threading.Thread(target=self._execute_late, args=(orders, after, facts), daemon=True).start()
                return self._unanswered(facts)
            case "slow":
                self._hold(orders, *tags)
            case "twice":
                self.execute(facts)
        receipt = self.execute(facts)
        if what == "hold":
            self._hold(orders, *tags)
        if what == "drop":
            return self._unanswered(facts)
        return self._answered(facts, {"number": "one"} if what == "mistype" else receipt)

    def _hold(self, orders: Orders, *tags: str) -> None:
        for tag in tags:
            orders.released[tag].wait(HOLD_SECONDS_MAX)

    def execute(self, order: Facts) -> Facts:
        """Do it, unless a key says that it was done, or a token that it must not be done any more."""
        with self._lock:
            orders, key, token = self._orders[order["name"]], order["key"], order["token"]
            if token <= orders.voided_token:
                refusal = "voided"
            elif order["is_keyed"] and token < orders.greatest_token.get(key, token):
                refusal = "an older token"
            elif order["is_keyed"] and key in orders.answers:
                orders.greatest_token[key] = token
                return orders.answers[key]
            else:
                receipt = {"number": len(orders.receipts) + 1, "name": order["name"]}
                orders.greatest_token[key] = max(token, orders.greatest_token.get(key, token))
                orders.receipts.append(receipt)
                orders.answers[key] = receipt
                self.note("executed", number=receipt["number"], **order)
                return receipt
        self.note("refused", why=refusal, **order)
        return {"error": refusal}

    def _execute_late(self, orders: Orders, tag: str, order: Facts) -> None:
        self._hold(orders, tag)
        self.execute(order)

    def _answered(self, order: Facts, answer: Facts) -> Facts:
        self.note("answered", answer=answer, **order)
        return answer

    def _unanswered(self, order: Facts) -> None:
        self.note("unanswered", **order)

    # --- looks ---------------------------------------------------------------------------------------------------------
    def look(self, look: Facts) -> Facts:
        """Say what became of an order: truly, unless something else was said for this look."""
        with self._lock:
            orders = self._orders[look["name"]]
            what, *tags = (orders.look_words.popleft() if orders.look_words else "tell").split()
            if what == "revoke" and not orders.receipts:
                orders.voided_token = max(orders.voided_token, look["token"])
            receipt = orders.receipts[-1] if orders.receipts and what != "miss" else None
            self.note("looked", word=what, receipt=receipt, **look)
        self._hold(orders, *tags)
        return {"word": what, "receipt": receipt}

    # --- what a test says ------------------------------------------------------------------------------------------------
    def say(self, said: Facts) -> Facts:
        """Treat the next orders and looks of a name as these words say, one each, or let go what is held under a tag."""
        with self._lock:
            orders = self._orders[said["name"]]
            orders.words.extend(said.get("words", ()))
            orders.look_words.extend(said.get("look_words", ()))
            for tag in said.get("released", ()):
                orders.released[tag].set()
        self.note("said", **said)
        return {}


def handler_of(paths: dict[str, Any]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = paths[self.path](sent)
            with contextlib.suppress(OSError):  # who asked may be dead by now, and that is the point
                self._send(answer)

        def _send(self, answer: Facts | None) -> None:
            if answer is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            body = json.dumps(answer).encode()
            self.send_response(500 if answer.get("error") == "broken" else 409 if "error" in answer else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """The log is the provider's own."""

    return Handler


class Listener:
    """Takes connections on one port, or refuses them while it is told to."""

    def __init__(self, paths: dict[str, Any]) -> None:
        self._handler = handler_of(paths)
        self._holder: socket.socket | None = None
        self._listen(0)

    def _listen(self, port: int) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def refuse(self, _: Facts) -> Facts:
        """Close the port; a socket that does not listen keeps it from anybody else."""
        self._server.shutdown()
        self._server.server_close()
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind(("127.0.0.1", self.port))
        return {}

    def accept(self, _: Facts) -> Facts:
        if self._holder is not None:
            self._holder.close()
            self._holder = None
            self._listen(self.port)
        return {}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--database", default="")
    options = parser.parse_args()
    provider = Provider(options.folder, options.database)
    orders = Listener({"/order": provider.order, "/look": provider.look})
    control = Listener({"/say": provider.say, "/refuse": orders.refuse, "/accept": orders.accept})
    sys.stdout.write(f"listening {orders.port} {control.port}\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main()
