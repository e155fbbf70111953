"""Growth: what is kept for ever, and what waits to be handed on. Pure."""

from dataclasses import dataclass

from outlast.finding import Check, Finding, not_applicable, ok, warning
from outlast.limits import KEYS_BYTES_WARNED, KEYS_COUNTED_MAX

_REMEDY = "remove those that nobody will send again (`outlast prune --keys-older-than`), and leave out idempotency_key where a run need not be unique"


@dataclass(frozen=True, slots=True)
class Keys:
    """The table of idempotency keys."""

    rows: int | None
    """An estimate, or counted up to `KEYS_COUNTED_MAX`; None when nobody has estimated yet."""
    size_bytes: int | None
    """With its indexes; None where it is not known."""


def judge_keys(found: Keys) -> list[Finding]:
    if found.size_bytes is not None:
        rows = "not yet counted" if found.rows is None else f"some {found.rows:,}"
        text = f"idempotency keys: {rows}, {found.size_bytes >> 20:,} MiB"
        return [warning(Check.GROWTH, text, _REMEDY) if found.size_bytes > KEYS_BYTES_WARNED else ok(Check.GROWTH, text)]
    rows_kept = found.rows or 0
    if rows_kept > KEYS_COUNTED_MAX:
        return [warning(Check.GROWTH, f"idempotency keys: more than {KEYS_COUNTED_MAX:,}", _REMEDY)]
    return [ok(Check.GROWTH, f"idempotency keys: {rows_kept:,}")]


def judge_outbox(has_outbox: bool) -> list[Finding]:
    if has_outbox:
        return [warning(Check.GROWTH, "this schema has an outbox, whose lag this version cannot read", "ask with the newer outlast that made it")]
    return [not_applicable(Check.GROWTH, "this schema has no outbox")]
