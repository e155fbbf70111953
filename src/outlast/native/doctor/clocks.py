"""Clocks: this machine's against the database's. Pure.

The database's clock decides; a machine that is wrong gives wrong instants (deadlines, `sleep_until`), and logs that lie.
"""

from datetime import timedelta

from outlast.finding import Check, Finding, ok, problem, warning
from outlast.limits import CLOCK_OFFSET_MAX, CLOCK_OFFSET_WARNED

_REMEDY = "let both machines follow a time server (NTP)"


def judge_offset(offset: timedelta, uncertainty: timedelta) -> list[Finding]:
    """`offset`: the database's time minus this machine's, give or take `uncertainty`."""
    amount = f"{abs(offset.total_seconds()):.3f} s (give or take {uncertainty.total_seconds():.3f} s)"
    text = f"this machine's clock is {'behind' if offset > timedelta() else 'ahead of'} the database's by {amount}"
    certain = abs(offset) - uncertainty
    if certain > CLOCK_OFFSET_MAX:
        return [problem(Check.CLOCK, f"{text}: deadlines and instants that are made here are wrong by that", _REMEDY)]
    if certain > CLOCK_OFFSET_WARNED:
        return [warning(Check.CLOCK, text, _REMEDY)]
    return [ok(Check.CLOCK, f"this machine and the database differ by {amount}")]


def judge_own(ahead: timedelta | None) -> list[Finding]:
    """On SQLite: how far the newest renewal of a living worker lies in the future; None without a worker."""
    if ahead is not None and ahead > CLOCK_OFFSET_WARNED:
        text = f"a living worker renewed its lease {ahead.total_seconds():.0f} s in the future: this machine's clock was set back"
        return [warning(Check.CLOCK, text, "let the machine follow a time server (NTP), which slews instead of jumping; timers are late by that once")]
    return [ok(Check.CLOCK, "the database has this machine's clock")]
