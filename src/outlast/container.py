"""The checks of values that are made of others: each looks at its parts and adds its own step to the path of what is wrong.

Every class must be exactly the declared one: a subclass would come back as its parent.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from outlast.plain import key_part, refuse_depth
from outlast.scalar import QUICK_CHECKS, Check, Refused, refuse_type


class Part(Protocol):
    """What is known of a part's type; its check is asked for late, because a type can hold itself."""

    check: Check


def list_check(kind: type[Any], item: Part) -> Check:
    """Return the check of a list, set, or tuple of any length."""
    are_fine = QUICK_CHECKS.get(item.check)
    name = kind.__name__

    def check(value: Any, depth: int) -> bool:
        if type(value) is not kind:
            refuse_type(name, value)
        refuse_depth(depth)
        if not value or (are_fine is not None and are_fine(value)):
            return False
        return _check_items(value, item, depth + 1)

    return check


def _check_items(values: Any, item: Part, depth: int) -> bool:
    is_rewritten = False
    index = 0
    check = item.check
    try:
        for value in values:
            if check(value, depth):
                is_rewritten = True
            index += 1
    except Refused as refused:
        refused.parts.append(f"[{index}]")
        raise
    return is_rewritten


def tuple_check(items: Sequence[Part]) -> Check:
    """Return the check of a tuple of fixed length."""
    size = len(items)

    def check(value: Any, depth: int) -> bool:
        if type(value) is not tuple:
            refuse_type("tuple", value)
        if len(value) != size:
            raise Refused(f"expected a tuple of {size}, got one of {len(value)}; pass as many, or change the annotation")
        refuse_depth(depth)
        is_rewritten = False
        index = 0
        try:
            for index, item in enumerate(items):
                if item.check(value[index], depth + 1):
                    is_rewritten = True
        except Refused as refused:
            refused.parts.append(f"[{index}]")
            raise
        return is_rewritten

    return check


def dict_check(key: Part, item: Part) -> Check:
    """Return the check of a dict whose values have one type."""

    def check(value: Any, depth: int) -> bool:
        if type(value) is not dict:
            refuse_type("dict", value)
        refuse_depth(depth)
        is_rewritten = False
        name: Any = None
        try:
            for name, part in value.items():
                key.check(name, depth)
                if item.check(part, depth + 1):
                    is_rewritten = True
        except Refused as refused:
            refused.parts.append(key_part(name))
            raise
        return is_rewritten

    return check


def typed_dict_check(name: str, fields: Mapping[str, Part], required: frozenset[str]) -> Check:
    """Return the check of a `TypedDict`, which loses keys that it does not declare when it is read."""

    def check(value: Any, depth: int) -> bool:
        if type(value) is not dict:
            refuse_type(name, value)
        refuse_depth(depth)
        missing = required - value.keys()
        if missing:
            raise Refused(f"{name} needs the key {min(missing)!r}; pass it, or declare it NotRequired")
        is_rewritten = False
        key: Any = None
        try:
            for key, part in value.items():
                if key not in fields:
                    raise Refused(f"{name} has no such key, and it would be lost; declare it, or leave it out")
                if fields[key].check(part, depth + 1):
                    is_rewritten = True
        except Refused as refused:
            refused.parts.append(key_part(key))
            raise
        return is_rewritten

    return check


def record_check(kind: type, fields: Mapping[str, Part], defaulted: Sequence[str] = ()) -> Check:
    """Return the check of a dataclass, struct or named tuple; `defaulted` are the fields whose default stands in the class."""
    parts = tuple(fields.items())

    def check(value: Any, depth: int) -> bool:
        if type(value) is not kind:
            refuse_type(kind.__qualname__, value)
        refuse_depth(depth)
        is_rewritten = False
        name = ""
        # msgspec reads a left-out field as the class's own attribute, and would not write that: the same value had two texts.
        for name in defaulted:
            if name not in value.__dict__:
                value.__dict__[name] = getattr(value, name)
        try:
            for name, part in parts:
                if part.check(getattr(value, name), depth + 1):
                    is_rewritten = True
        except Refused as refused:
            refused.parts.append(f".{name}")
            raise
        return is_rewritten

    return check


def union_check(name: str, by_kind: Mapping[type, Part], otherwise: Part | None) -> Check:
    """Return the check of a union: the value's class says which member it is."""

    def check(value: Any, depth: int) -> bool:
        part = by_kind.get(type(value), otherwise)
        if part is None:
            refuse_type(name, value)
        return part.check(value, depth)

    return check
