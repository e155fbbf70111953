"""What holds of every value: what is written is read as the same, what is not is refused, and no text breaks the reader."""

import datetime as dt
import math
import string
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import PayloadError
from outlast.limits import INTEGER_MAX, INTEGER_MIN
from outlast.payload import Codec, codec_for
from outlast.signature import signature_of


class Kind(Enum):
    A = "a"
    B = "b"


class Pair(NamedTuple):
    left: str
    right: int | None = None


@dataclass
class Everything:
    text: str
    number: int
    real: float
    exact: Decimal
    raw: bytes
    moment: dt.datetime
    day: dt.date
    hour: dt.time
    span: dt.timedelta
    id: UUID
    kind: Kind
    path: Path
    pair: Pair
    flags: tuple[bool, ...]
    table: dict[str, list[float]]
    group: set[str]
    maybe: "Everything | None" = None
    more: dict[int, Any] = field(default_factory=dict)


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
integers = st.integers(INTEGER_MIN, INTEGER_MAX)
reals = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | integers | reals | texts, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=20
)
zones = st.none() | st.integers(-1439, 1439).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
paths = st.binary(min_size=1).filter(lambda raw: b"\0" not in raw).map(lambda raw: Path(raw.decode("utf-8", "surrogateescape")))
everything = st.builds(
    Everything,
    text=texts,
    number=integers,
    real=reals,
    exact=st.decimals(allow_nan=False, allow_infinity=False),
    raw=st.binary(),
    moment=st.datetimes(timezones=zones),
    day=st.dates(),
    hour=st.times(timezones=zones),
    span=st.timedeltas(),
    id=st.uuids(),
    kind=st.sampled_from(Kind),
    path=paths,
    pair=st.builds(Pair, texts, st.none() | integers),
    flags=st.lists(st.booleans(), max_size=3).map(tuple),
    table=st.dictionaries(texts, st.lists(reals, max_size=3), max_size=3),
    group=st.sets(texts, max_size=4),
    more=st.dictionaries(integers, plain, max_size=3),
)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[]))
    | st.binary()
    | st.decimals()
    | st.datetimes()
    | st.uuids()
    | st.sampled_from(Kind),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(st.integers(), max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=[])) | st.integers() | st.none(), inner, max_size=3)
    ),
    max_leaves=10,
)


def is_same(one: Any, other: Any) -> bool:
    """Tell whether two values are equal in all classes too, a tuple being the list that it comes back as."""
    if isinstance(one, list | tuple) and type(one) in (list, tuple):
        return type(other) is list and len(one) == len(other) and all(map(is_same, one, other))
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


def assert_comes_back(codec: Codec, value: Any) -> Any:
    text = codec.encode(value, "x")
    assert "\\u0000" not in text.replace("\\\\", "")
    text.encode()
    back = codec.decode(text, "x")
    assert codec.encode(back, "x") == text
    assert codec.is_same(text, text)
    return back


@given(everything)
def test_typed_value_comes_back(value: Everything) -> None:
    """A dataclass of every supported type is read as equal, and written the same again."""
    value.maybe = Everything(**vars(value))
    back = assert_comes_back(codec_for(Everything), value)
    assert back == value
    assert is_same(vars(back)["more"], value.more)
    assert back.moment.utcoffset() == value.moment.utcoffset()


@given(plain)
def test_plain_value_comes_back(value: Any) -> None:
    """Plain JSON needs no type to come back as it was."""
    assert is_same(value, assert_comes_back(codec_for(Any), value))


@given(anything)
def test_untyped_value_comes_back_or_is_refused(value: Any) -> None:
    """Without a type a value comes back equal, tuples as lists, or is refused; never changed in silence."""
    codec = codec_for(Any)
    try:
        text = codec.encode(value, "x")
    except PayloadError as error:
        refused = error
    else:
        assert is_same(value, codec.decode(text, "x"))
        return
    assert refused.field.startswith("x")
    str(refused).encode()


@given(
    anything,
    st.sampled_from([int, float, str, bytes, bool, list[int], dict[str, Any], tuple[str, int], int | None, list[str] | str, Decimal, Kind, Everything]),
)
def test_wrong_type_is_refused(value: Any, annotation: Any) -> None:
    """Whatever stands where another type is declared: what is taken is read as the same, all else is a PayloadError."""
    codec = codec_for(annotation)
    try:
        text = codec.encode(value, "x")
    except PayloadError:
        return
    back = codec.decode(text, "x")
    assert back == value
    assert type(back) is type(value) or annotation is float


@given(st.text(st.characters(exclude_categories=[])) | st.text('[]{}",:\\u0d89ax1e.-+ntf' + string.whitespace))
def test_no_text_breaks_the_reader(text: str) -> None:
    """Reading any text gives a value or a PayloadError, and nothing else."""
    for annotation in (Any, Everything, float, Path, set[int]):
        try:
            codec_for(annotation).decode(text, "x")
        except PayloadError:
            pass


@given(st.sets(st.integers(-50, 50) | texts))
def test_set_has_one_text(items: set[int | str]) -> None:
    """However a set was built, its text is the same."""
    codec = codec_for(set[int | str])
    backwards: set[int | str] = set()
    for item in sorted(items, key=repr, reverse=True):
        backwards.add(item)
    assert codec.encode(items, "x") == codec.encode(backwards, "x") == codec.encode(codec.decode(codec.encode(items, "x"), "x"), "x")


def _call(a: int, b: str = "b", /, c: float = 0.5, *more: bytes, d: int | None = None, **rest: str) -> None: ...


@given(
    st.tuples(st.integers(0, 9)) | st.tuples(st.integers(0, 9), st.text("xyz")) | st.tuples(st.integers(0, 9), st.text("xyz"), reals, st.binary(), st.binary()),
    st.fixed_dictionaries({}, optional={"d": st.none() | st.integers(0, 9), "ef": st.text("xyz"), "a": st.text("xyz")}),
)
def test_arguments_come_back_as_the_same_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Whatever a function is called with, what is read binds to the same parameters, and has the same text again."""
    signature = signature_of(_call)
    text = signature.encode_arguments(args, kwargs, "x")
    again_args, again_kwargs = signature.decode_arguments(text, "x")
    assert (again_args, again_kwargs) == (args, kwargs)
    assert signature.encode_arguments(again_args, again_kwargs, "x") == text
