"""Plain JSON, the values under `Any`: nothing says there what they were, so only what comes back equal is taken.

dict (keys str), list, str, int, float, bool and None, exactly these classes. A tuple is taken too and comes back as a list,
the only change that is made; everything else (an enum, a dataclass, a set) is refused with the advice to annotate it.
"""

from collections.abc import Sequence
from typing import Any

from outlast.limits import PAYLOAD_DEPTH_MAX
from outlast.scalar import CHECKS, Check, Refused, check_text, type_name

_SCALARS: dict[type, Check] = {kind: CHECKS[kind] for kind in (str, int, float, bool, type(None))}


def check_plain(value: Any, depth: int) -> bool:
    """Take what comes back equal without a type."""
    check = _CHECKS.get(type(value))
    if check is None:
        raise Refused(f"{type_name(value)} would not come back as it is without an annotation; annotate it with its type, or pass plain JSON")
    return check(value, depth)


def _check_array(value: Sequence[Any], depth: int) -> bool:
    refuse_depth(depth)
    index = 0
    try:
        for item in value:
            check_plain(item, depth + 1)
            index += 1
    except Refused as refused:
        refused.parts.append(f"[{index}]")
        raise
    return False


def _check_object(value: dict[Any, Any], depth: int) -> bool:
    refuse_depth(depth)
    key: Any = None
    try:
        for key, item in value.items():
            check_key(key)
            check_plain(item, depth + 1)
    except Refused as refused:
        refused.parts.append(key_part(key))
        raise
    return False


def check_key(key: Any) -> None:
    """Take a key of plain JSON; 1 and "1" would become one key in silence."""
    if type(key) is not str:
        raise Refused(f"a key of plain JSON must be str, got {type_name(key)}; annotate the dict, for example dict[int, str]")
    check_text(key, 0)


def key_part(key: Any) -> str:
    """Return how a key is written in a field's path; never with what a database or a terminal cannot take."""
    return f"[{ascii(key)[:60]}]" if isinstance(key, str | int) else f"[{type_name(key)}]"


def refuse_depth(depth: int) -> None:
    if depth > PAYLOAD_DEPTH_MAX:
        raise Refused(f"nested deeper than {PAYLOAD_DEPTH_MAX}, or it holds itself; store it flat, or in a file and pass the path")


_CHECKS: dict[type, Check] = {**_SCALARS, list: _check_array, tuple: _check_array, dict: _check_object}
