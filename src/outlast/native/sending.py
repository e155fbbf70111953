"""Sending: signals from outside of bodies. A send is one row in its own transaction; then its sender delivers what is there.

The answer comes after the commit, and the delivery is no part of the promise: what a sender that ends or meets a locked topic
leaves, any worker delivers at its next look. Senders at once share their passes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec

from outlast.database.transaction import Transaction
from outlast.errors import OutlastError, SignalConflictError
from outlast.ids import run_id
from outlast.limits import IDEMPOTENCY_KEY_CHARACTERS_MAX, SIGNAL_DELIVERY_WAIT, SIGNAL_TTL, WAITING_COUNTED_MAX
from outlast.payload import digest
from outlast.run import SignalOptions
from outlast.signal import SignalReceipt, checked_topic, checked_ttl, encoded_payload

from .delivery import Delivery
from .encoding import headers_to_json
from .mailbox import NewSignal, Sent
from .new_run import checked_headers, checked_text
from .runtime import Runtime

logger = logging.getLogger("outlast")


def new_signal(topic: str, payload: Any, options: SignalOptions) -> NewSignal:
    """Return the signal; `UsageError` and its kinds name what is wrong."""
    text, key, headers = encoded_payload(payload), options.get("idempotency_key"), options.get("headers")
    return NewSignal(
        id=run_id(),
        topic=checked_topic(topic),
        payload=text,
        ttl=checked_ttl(options.get("ttl", SIGNAL_TTL)),
        idempotency_key=None if key is None else checked_text(key, "idempotency_key", IDEMPOTENCY_KEY_CHARACTERS_MAX),
        payload_digest=_digest(text),
        headers=headers_to_json(checked_headers(headers)) if headers else None,
    )


def _digest(payload: str) -> str:
    """Return what equal payloads have in common, in whatever order their fields were written."""
    return digest(msgspec.json.encode(msgspec.json.decode(payload), order="sorted").decode())


class Sender:
    """The sends of one engine."""

    def __init__(self, runtime: Runtime, wake: Callable[[set[int]], Awaitable[None]]) -> None:
        self._runtime = runtime
        self._wake = wake
        self._delivery = Delivery(runtime.calls, runtime.store, runtime.at)
        self._waiting: list[asyncio.Future[None]] = []
        self._passing: asyncio.Task[None] | None = None

    async def send(self, signal: NewSignal) -> SignalReceipt:
        """Commit a signal, deliver it if that goes at once, and say what became of it. Tried again under its id until the database answers."""
        runtime = self._runtime

        def append(tx: Transaction) -> tuple[Sent, int]:
            sent = runtime.store.append_signal(tx, signal, runtime.at())
            return sent, runtime.store.count_waiting(tx, signal.topic, WAITING_COUNTED_MAX)

        (sent, waiting), _ = await runtime.write_again("append_signal", append)
        if sent.payload_digest != signal.payload_digest:
            raise SignalConflictError(signal.topic, signal.idempotency_key or "", sent.id)
        if sent.created:
            await self.deliver()
        return SignalReceipt(sent.id, waiting, sent.created)

    async def deliver(self, timeout: timedelta = SIGNAL_DELIVERY_WAIT) -> None:
        """Have what is committed by now delivered, and wait for that a little."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        if self._passing is None:
            self._passing = self._runtime.spawn(self._pass())
        await asyncio.wait({done}, timeout=timeout.total_seconds())

    async def _pass(self) -> None:
        """Make passes for as long as somebody asks for one that begins after his commit."""
        asking: list[asyncio.Future[None]] = []
        try:
            while self._waiting:
                asking, self._waiting = self._waiting, []
                await self._deliver()
                _tell(asking)
        finally:
            self._passing = None
            left, self._waiting = [*asking, *self._waiting], []
            _tell(left)

    async def _deliver(self) -> None:
        try:
            await self._wake(await self._delivery.deliver())
        except OutlastError as error:
            logger.debug("what was sent was not delivered by its sender: %s", error)


def _tell(asking: list[asyncio.Future[None]]) -> None:
    for one in asking:
        if not one.done():
            one.set_result(None)
