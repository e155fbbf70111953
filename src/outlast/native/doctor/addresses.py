"""Addresses: does a pooler stand before the server, do both addresses reach one database, and do wake-ups arrive? Pure."""

from dataclasses import dataclass

from outlast.finding import Check, Finding, ok, problem, warning

_REMEDY = "give the server's own address: connect(..., direct_url=...)"


@dataclass(frozen=True, slots=True)
class Address:
    """What a fresh connection to one address met."""

    error: str | None = None
    """Why there is no connection."""
    promised_backend: int = 0
    """The process that the greeting named."""
    backend: int = 0
    """The process that answered."""
    is_standby: bool = False
    schema_id: str | None = None
    """Of the schema found there; None without one."""

    @property
    def is_pooled(self) -> bool:
        return self.error is None and self.promised_backend != self.backend


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """What the listener's own test met."""

    milliseconds: float | None
    """None when it did not come back."""
    waited_seconds: float
    error: str = ""


def judge_pooler(main: Address, direct: Address, *, is_direct_given: bool) -> list[Finding]:
    """`direct` is where the listener and the lock go: the main address unless another was given."""
    where = "direct_url" if is_direct_given else "the address"
    if direct.error is not None:
        text = f"{where} cannot be reached: {direct.error}"
        return [problem(Check.POOLER, text, "correct it: without it wake-ups are lost and killed workers are not proven dead")]
    if direct.is_standby:
        return [problem(Check.POOLER, f"{where} reaches a standby, where no wake-up and no proof of life passes", "give the address of the primary")]
    if main.schema_id is not None and direct.schema_id != main.schema_id:
        text = f"{where} reaches another database than the main address: living workers would be taken for dead"
        return [problem(Check.POOLER, text, "give both addresses the same database")]
    if direct.is_pooled:
        text = f"{where} goes through a pooler: wake-ups are lost, and killed workers are not proven dead but waited for"
        return [warning(Check.POOLER, text, _REMEDY)]
    if main.is_pooled:
        return [ok(Check.POOLER, "the main address goes through a pooler; the listener and the lock reach the server itself")]
    return [ok(Check.POOLER, "no pooler: the server itself answers")]


def judge_listener(found: RoundTrip) -> list[Finding]:
    if found.milliseconds is not None:
        return [ok(Check.LISTENER, f"a wake-up came back after {found.milliseconds:.0f} ms")]
    reason = f" ({found.error})" if found.error else ""
    text = f"a wake-up did not come back within {found.waited_seconds:g} s{reason}: idle workers find new runs by their polls only"
    return [warning(Check.LISTENER, text, _REMEDY)]
