"""Budget: do the connections that the fleet may open fit into the server? Pure."""

from dataclasses import dataclass

from outlast.finding import Check, Finding, ok, problem, warning

OWN_CONNECTIONS = 3
"""Of each worker, beside its pool: lease, lock, listener."""
DIRECT_CONNECTIONS = 2
"""Of each worker, where a pooler has the rest: lock, listener."""


@dataclass(frozen=True, slots=True)
class ServerConnections:
    """What the server has, and who has it."""

    maximum: int
    reserved: int
    """Kept for superusers and reserved roles."""
    others: int
    """Connections of anybody but this fleet, now."""
    workers: int
    """Living workers."""


def judge(found: ServerConnections, *, pool_size: int, is_pooled: bool) -> list[Finding]:
    each = DIRECT_CONNECTIONS if is_pooled else pool_size + OWN_CONNECTIONS
    fleet, usable = found.workers * each, found.maximum - found.reserved
    sum_text = f"{found.workers} living workers may open {fleet} connections ({each} each), others have {found.others}, and the server has {usable} for them"
    remedy = "raise max_connections, run fewer worker processes, use connect(connections=...), or put a pooler before the server"
    if fleet > usable:
        return [problem(Check.CONNECTIONS, sum_text, remedy)]
    if fleet + found.others > usable:
        return [warning(Check.CONNECTIONS, sum_text, remedy)]
    if each > usable - found.others:
        return [warning(Check.CONNECTIONS, f"{sum_text}: one worker more would not fit", remedy)]
    return [ok(Check.CONNECTIONS, sum_text)]
