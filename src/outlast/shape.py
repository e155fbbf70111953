"""Shape: an annotation compiled once into one check that says whether a value would come back as what it is.

The check is exact where msgspec is lenient on writing: it never looks at declared types then, and writes NaN as null.
Never reads or writes JSON itself.
"""

from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from typing import Any, get_origin
from uuid import UUID

import msgspec.inspect as types

from outlast import foreign
from outlast.container import dict_check, list_check, record_check, tuple_check, typed_dict_check, union_check
from outlast.plain import check_plain
from outlast.scalar import CHECKS, Check, check_text, exactly, one_of

_SCALARS: dict[type[types.Type], type] = {
    types.StrType: str,
    types.IntType: int,
    types.FloatType: float,
    types.BoolType: bool,
    types.NoneType: type(None),
    types.BytesType: bytes,
    types.ByteArrayType: bytearray,
    types.DateTimeType: datetime,
    types.DateType: date,
    types.TimeType: time,
    types.TimeDeltaType: timedelta,
    types.UUIDType: UUID,
    types.DecimalType: Decimal,
}
_KEYS = frozenset((str, int, datetime, date, time, timedelta, UUID, Decimal))
_CONSTRAINTS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")


class Shape:
    """One part of an annotation."""

    __slots__ = ("check", "kinds", "name")

    def __init__(self, name: str, kinds: Iterable[type] = (), check: Check | None = None) -> None:
        self.name = name
        self.kinds = frozenset(kinds)
        """The classes of the values that it takes; empty where only the check can tell."""
        self.check: Check = check or self._late

    def _late(self, value: Any, depth: int) -> bool:
        # A type that holds itself is asked for its check while that is still being made.
        return self.check(value, depth)


class ShapeCompiler:
    """Makes the shape of one annotation, and notes what the codec has to know about the whole."""

    def __init__(self) -> None:
        self.has_sets = False
        self.has_decimals = False
        self.needs_round_trip = False
        """Reading can refuse or change what the check takes: a bound, a `__post_init__`, a struct's options."""
        self._made: dict[int, Shape] = {}

    def shape_of(self, info: types.Type) -> Shape:
        """Return the shape; TypeError for what cannot be kept."""
        known = self._made.get(id(info))
        if known is not None:
            return known
        self.needs_round_trip |= any(getattr(info, name, None) is not None for name in _CONSTRAINTS)
        kind = _SCALARS.get(type(info))
        return self._container(info) if kind is None else self._scalar(kind)

    def _scalar(self, kind: type) -> Shape:
        self.has_decimals |= kind is Decimal
        return Shape("None" if kind is type(None) else kind.__name__, (kind,), CHECKS[kind])

    def _container(self, info: types.Type) -> Shape:
        match info:
            case types.ListType():
                return self._make(info, list, lambda: list_check(list, self.shape_of(info.item_type)))
            case types.VarTupleType():
                return self._make(info, tuple, lambda: list_check(tuple, self.shape_of(info.item_type)))
            case types.SetType() | types.FrozenSetType():
                self.has_sets = True
                kind = set if isinstance(info, types.SetType) else frozenset
                return self._make(info, kind, lambda: list_check(kind, self.shape_of(info.item_type)))
            case types.TupleType():
                return self._make(info, tuple, lambda: tuple_check([self.shape_of(item) for item in info.item_types]))
            case types.DictType():
                return self._make(info, dict, lambda: dict_check(self._key(info.key_type), self.shape_of(info.value_type)))
            case types.TypedDictType():
                return self._make(info, dict, lambda: self._typed_dict(info), info.cls.__qualname__)
            case types.DataclassType() | types.NamedTupleType() | types.StructType():
                return self._record(info)
            case types.UnionType():
                return self._union(info)
        return self._other(info)

    def _other(self, info: types.Type) -> Shape:
        match info:
            case types.Metadata():
                return self.shape_of(info.type)
            case types.AnyType():
                return Shape("plain JSON", (), check_plain)
            case types.EnumType():
                return self._enum(info.cls)
            case types.LiteralType():
                return Shape(f"Literal{list(info.values)}", map(type, info.values), one_of(info.values))
            case types.CustomType():
                return self._custom(info.cls)
        raise TypeError(f"{type(info).__name__.removesuffix('Type')} is not supported")

    def _make(self, info: types.Type, kind: type, compile_check: Callable[[], Check], name: str = "") -> Shape:
        shape = self._made[id(info)] = Shape(name or kind.__qualname__, (kind,))
        shape.check = compile_check()
        return shape

    def _typed_dict(self, info: types.TypedDictType) -> Check:
        fields = {field.name: self.shape_of(field.type) for field in info.fields}
        return typed_dict_check(info.cls.__qualname__, fields, frozenset(field.name for field in info.fields if field.required))

    def _record(self, info: types.DataclassType | types.NamedTupleType | types.StructType) -> Shape:
        kind = get_origin(info.cls) or info.cls
        self.needs_round_trip |= isinstance(info, types.StructType) or hasattr(kind, "__post_init__")
        has_attributes = isinstance(info, types.DataclassType) and kind.__dictoffset__ != 0
        defaulted = [field.name for field in info.fields if has_attributes and hasattr(kind, field.name)]
        return self._make(info, kind, lambda: record_check(kind, {field.name: self.shape_of(field.type) for field in info.fields}, defaulted))

    def _union(self, info: types.UnionType) -> Shape:
        members = [self.shape_of(member) for member in info.types]
        by_kind = {kind: member for member in members for kind in member.kinds}
        if float in by_kind:
            by_kind.setdefault(int, by_kind[float])
        otherwise = next((member for member in members if not member.kinds), None)
        name = " | ".join(member.name for member in members)
        return Shape(name, () if otherwise else by_kind, union_check(name, by_kind, otherwise))

    def _enum(self, kind: type[Enum]) -> Shape:
        for member in kind:
            CHECKS[int if isinstance(member.value, int) else str](member.value, 0)
        self.needs_round_trip |= issubclass(kind, Flag)
        return Shape(kind.__qualname__, (kind,), exactly(kind))

    def _key(self, info: types.Type) -> Shape:
        match info:
            case types.AnyType():
                return Shape("str", (str,), check_text)
            case types.EnumType() | types.LiteralType():
                return self.shape_of(info)
        if _SCALARS.get(type(info)) not in _KEYS:
            raise TypeError("the keys of a dict must be str, int, UUID, Decimal, a date or a time, or an enum of these")
        return self.shape_of(info)

    def _custom(self, kind: type) -> Shape:
        if kind is object:
            return Shape("plain JSON", (), check_plain)
        check = foreign.check_for(kind)
        if check is None:
            raise TypeError(f"{kind.__qualname__} is not supported")
        self.needs_round_trip |= foreign.is_model(kind)
        return Shape(kind.__qualname__, (), check)
