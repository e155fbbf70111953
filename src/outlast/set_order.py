"""Sets in one order: without it the text of a set, and so its digest, would differ from process to process.

Items stand in the order of their JSON text. Only values of types that hold sets come here; never changes the value given.
"""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec


def ordered(value: Any, write: Callable[[Any], bytes]) -> Any:
    """Return a copy that is written as `value`, with each set as a list in order."""
    if isinstance(value, set | frozenset):
        return sorted((ordered(item, write) for item in value), key=write)
    if isinstance(value, list | tuple):
        return [ordered(item, write) for item in value]
    if isinstance(value, dict):
        return {key: ordered(item, write) for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        return _ordered_struct(value, write)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _ordered_dataclass(value, write)
    return value


def _ordered_struct(value: msgspec.Struct, write: Callable[[Any], bytes]) -> msgspec.Struct:
    result = copy.copy(value)
    for name in value.__struct_fields__:
        msgspec.structs.force_setattr(result, name, ordered(getattr(value, name), write))
    return result


def _ordered_dataclass(value: Any, write: Callable[[Any], bytes]) -> Any:
    # Made without __init__, and set as frozen and slotted classes have to be.
    result = object.__new__(type(value))
    for field in dataclasses.fields(value):
        object.__setattr__(result, field.name, ordered(getattr(value, field.name), write))
    return result
