"""What `payload` promises of single values: exact text, exact return, and refusals that name the field."""

import base64
import enum
import math
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from outlast.errors import PayloadError, UsageError
from outlast.limits import PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX
from outlast.payload import codec_for, digest

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Item:
    name: str
    price: float
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Order:
    id: str
    items: tuple[Item, ...]
    note: str | None = None


@dataclass
class Special(Item):
    extra: int = 0


@dataclass(frozen=True, slots=True)
class Marked:
    marks: frozenset[str]
    more: dict[str, set[int]]


@dataclass
class Tree:
    name: str
    children: "list[Tree]" = field(default_factory=list)


@dataclass
class Rounded:
    value: int

    def __post_init__(self) -> None:
        self.value = self.value // 10 * 10


@dataclass
class Box(Generic[T]):
    content: T


class Row(TypedDict):
    id: int
    note: NotRequired[str]


class Point(NamedTuple):
    x: int
    y: int = 0


class Renamed(msgspec.Struct, rename="camel", tag="renamed", omit_defaults=True):
    first_name: str
    aliases: set[str] = msgspec.field(default_factory=set)


class Model(pydantic.BaseModel):
    when: datetime
    size: int = 0
    parts: dict[str, Any] = {}
    ratio: float | None = None


class Priced(TypedDict):
    order: Order


# The texts below are kept in databases and compared by digest: a change of one breaks every run that is under way.
FROZEN = [
    (str, "plain", '"plain"'),
    (str, 'a"b\\c/d\n\t\x01\x7f', '"a\\"b\\\\c/d\\n\\t\\u0001\x7f"'),
    (str, "grün 😀 \u2028", '"grün 😀 \u2028"'),
    (int, -(2**63), "-9223372036854775808"),
    (int, 2**63 - 1, "9223372036854775807"),
    (bool, True, "true"),
    (None, None, "null"),
    (float, 1e22, "1e22"),
    (float, 0.1, "0.1"),
    (float, 5.0, "5.0"),
    (float, 5, "5.0"),
    (float, -0.0, "-0.0"),
    (float, 1e16, "1e16"),
    (float, 1e-7, "1e-7"),
    (float, 1.7976931348623157e308, "1.7976931348623157e308"),
    (int | float, 5, "5"),
    (float | None, 5, "5.0"),
    (Decimal, Decimal("1.50"), '"1.50"'),
    (bytes, b"ab\x00", '"YWIA"'),
    (UUID, UUID(int=0xABC), '"00000000-0000-0000-0000-000000000abc"'),
    (datetime, datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=2))), '"2024-02-29T01:02:03.000004+02:00"'),
    (datetime, datetime(2024, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")), '"2024-07-01T00:00:00+02:00"'),
    (datetime, datetime(2024, 2, 29, tzinfo=UTC), '"2024-02-29T00:00:00Z"'),
    (datetime, datetime(2024, 2, 29), '"2024-02-29T00:00:00"'),
    (date, date(2024, 2, 29), '"2024-02-29"'),
    (time, time(1, 2, 3), '"01:02:03"'),
    (timedelta, timedelta(days=1, seconds=2, microseconds=30), '"P1DT2.00003S"'),
    (timedelta, timedelta(seconds=-1), '"-PT1S"'),
    (Colour, Colour.RED, '"red"'),
    (Level, Level.LOW, "1"),
    (Access, Access.READ | Access.WRITE, "3"),
    (Literal["a", 1], 1, "1"),
    (Path, Path("/srv/grün.mkv"), '"/srv/grün.mkv"'),
    (Path, Path("/srv/\udcff.mkv"), '{"$path":"L3Nydi//Lm1rdg=="}'),
    (Path | None, Path("a"), '"a"'),
    (PureWindowsPath, PureWindowsPath("c:\\x"), '"c:\\\\x"'),
    (Item, Item("a", 1), '{"name":"a","price":1.0,"tags":[]}'),
    (Order, Order("o", (Item("a", 1.5, ["x"]),)), '{"id":"o","items":[{"name":"a","price":1.5,"tags":["x"]}],"note":null}'),
    (Tree, Tree("a", [Tree("b")]), '{"name":"a","children":[{"name":"b","children":[]}]}'),
    (Box[int], Box(3), '{"content":3}'),
    (Row, {"id": 1}, '{"id":1}'),
    (Point, Point(1), "[1,0]"),
    (Renamed, Renamed("x", {"b", "a"}), '{"type":"renamed","firstName":"x","aliases":["a","b"]}'),
    (Model, Model(when=datetime(2024, 1, 1, tzinfo=UTC)), '{"when":"2024-01-01T00:00:00Z","size":0,"parts":{},"ratio":null}'),
    (set[int], {10, 9, 2}, "[10,2,9]"),
    (frozenset[str], frozenset("cab"), '["a","b","c"]'),
    (Marked, Marked(frozenset("ba"), {"z": {2, 1}, "a": set()}), '{"marks":["a","b"],"more":{"z":[1,2],"a":[]}}'),
    (dict[int, str], {2: "b", 1: "a"}, '{"2":"b","1":"a"}'),
    (dict[Colour, Path], {Colour.RED: Path("a")}, '{"red":"a"}'),
    (tuple[int, str], (1, "a"), '[1,"a"]'),
    (Any, {"b": [1, 2.0, None, True], "a": {}}, '{"b":[1,2.0,null,true],"a":{}}'),
]


@pytest.mark.parametrize(("annotation", "value", "text"), FROZEN, ids=map(str, range(len(FROZEN))))
def test_text_is_frozen_and_value_comes_back(annotation: Any, value: Any, text: str) -> None:
    """A value has this text in every release, and reading it gives an equal value whose text is the same."""
    codec = codec_for(annotation)
    assert codec.encode(value, "input") == text
    back = codec.decode(text, "input")
    assert back == value
    assert codec.encode(back, "input") == text
    if annotation is not float:
        assert type(back) is type(value) or isinstance(value, float | int)


def test_digest_is_frozen() -> None:
    """The digest of a text never changes."""
    assert digest('{"a":1}') == "2c6b113b8dd15ffbded9860b43eb0c6c"
    assert len(digest("")) == 32


REFUSED = [
    (int, "5", "input", "expected int, got str"),
    (int, True, "input", "expected int, got bool"),
    (int, 5.0, "input", "expected int, got float"),
    (int, Level.LOW, "input", "test_payload.Level"),
    (str, Colour.RED, "input", "test_payload.Colour"),
    (bool, 1, "input", "expected bool, got int"),
    (str, None, "input", "expected str, got None"),
    (str, b"a", "input", "expected str, got bytes"),
    (str | None, 5, "input", "expected str | None, got int"),
    (None, 0, "input", "expected None, got int"),
    (bytes, "a", "input", "expected bytes, got str"),
    (Decimal, "1.5", "input", "expected Decimal, got str"),
    (Decimal, Decimal("NaN"), "input", "NaN"),
    (datetime, date(2024, 1, 1), "input", "expected datetime"),
    (date, datetime(2024, 1, 1), "input", "expected date"),
    (datetime, datetime(1800, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")), "input", "offset has seconds"),
    (time, time(1, tzinfo=ZoneInfo("Europe/Berlin")), "input", "no offset"),
    (Literal[1], True, "input", "expected one of 1, got bool"),
    (Literal["a", "b"], "c", "input", "expected one of 'a', 'b', got str"),
    (Path, "a", "input", "expected Path, got str"),
    (Path, PureWindowsPath("a\\b"), "input", "another path"),
    (Path, Path("a\0b"), "input", "NUL"),
    (Path, Path("\ud800"), "input", "no file name"),
    (float, math.nan, "input", "NaN"),
    (float, -math.inf, "input", "infinity"),
    (float, 2**60 + 1, "input", "too large"),
    (int, 2**63, "input", "64 bits"),
    (int, -(2**63) - 1, "input", "64 bits"),
    (list[int], [1] * 20 + [10**5000], "input[20]", "64 bits"),
    (list[float], [1.0, math.nan], "input[1]", "NaN"),
    (list[str], ["a", "b\0"], "input[1]", "NUL"),
    (list[str], ["a", "\ud800"], "input[1]", "surrogate"),
    (list[str], ("a",), "input", "expected list, got tuple"),
    (tuple[int, str], (1,), "input", "expected a tuple of 2"),
    (tuple[int, str], (1, 2), "input[1]", "expected str"),
    (dict[str, int], {"a b": "x"}, "input['a b']", "expected int"),
    (dict[str, int], {"\0": 1}, "input['\\x00']", "NUL"),
    (dict[str, int], {1: 1}, "input[1]", "expected str, got int"),
    (set[int], {"a"}, "input[0]", "expected int"),
    (Item, Special("a", 1.0), "input", "test_payload.Special"),
    (Item, {"name": "a", "price": 1.0}, "input", "expected Item, got dict"),
    (Order, Order("o", (Item("a", 1.0), Item("b", "x"))), "input.items[1].price", "expected float, got str"),  # type: ignore[arg-type]  # what is refused
    (Priced, {"order": Order("o", (Item("a", 1.0, ["\0"]),))}, "input['order'].items[0].tags[0]", "NUL"),
    (Row, {"note": "x"}, "input", "needs the key 'id'"),
    (Row, {"id": 1, "other": 1}, "input['other']", "would be lost"),
    (Rounded, Rounded.__new__(Rounded), "input", "AttributeError"),
    (Annotated[int, msgspec.Meta(ge=3)], 2, "input", ">= 3"),
    (Model, Model(when=datetime(2024, 1, 1, tzinfo=UTC), ratio=math.nan), "input", "NaN"),
    (Model, Model(when=datetime(2024, 1, 1, tzinfo=UTC), parts={"a": {1, 2}}), "input", "set inside"),
    (Model, Model(when=datetime(2024, 1, 1, tzinfo=UTC), size=2**64), "input", "64 bits"),
    (Model, Model(when=datetime(2024, 1, 1, tzinfo=UTC), parts={"a": ["\0"]}), "input", "NUL"),
    (Any, math.inf, "input", "infinity"),
    (Any, {"a": [{"b": math.nan}]}, "input['a'][0]['b']", "NaN"),
    (Any, {1: "a"}, "input[1]", "must be str"),
    (Any, [0, (1, b"x")], "input[1][1]", "bytes would not come back"),
    (Any, {"a": {"\ud800": 1}}, "input['a']['\\ud800']", "surrogate"),
    (Any, 2**63, "input", "64 bits"),
    (Any, "x" * PAYLOAD_BYTES_MAX, "input", "1048578 bytes"),
]
REFUSED += [
    (Any, value, "input", "would not come back")
    for value in (
        b"a", bytearray(b"a"), {1}, frozenset(), Item("a", 1.0), Point(1), Colour.RED, Level.LOW, Path("a"), UUID(int=1), Decimal(1), object(), range(3),
        datetime(2024, 1, 1, tzinfo=UTC), date(2024, 1, 1), timedelta(1), 1j, len, int, ValueError("x"), Renamed("x"), memoryview(b"a"), ...,
    )
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "value", "where", "why"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_refused_at_the_door(annotation: Any, value: Any, where: str, why: str) -> None:
    """What would not come back as it is gives a PayloadError with the path of the part and the reason."""
    with pytest.raises(PayloadError) as caught:
        codec_for(annotation).encode(value, "input")
    assert str(caught.value).startswith(f"{where}: ")
    assert why in str(caught.value)
    assert caught.value.field == where
    str(caught.value).encode()


def test_message_never_shows_the_value() -> None:
    """A refused secret is not in the message."""
    with pytest.raises(PayloadError) as caught:
        codec_for(int).encode("hunter2", "input")
    assert "hunter2" not in str(caught.value)


def test_tuple_under_any_comes_back_as_list() -> None:
    """The one change that untyped values go through is tuple to list."""
    codec = codec_for(Any)
    assert codec.decode(codec.encode((1, [(2,)]), "x"), "x") == [1, [[2]]]


def test_path_comes_back_as_the_annotated_class() -> None:
    """A concrete path under PurePath is read as PurePath makes it, and one that is no UTF-8 as the same bytes."""
    codec = codec_for(PurePath)
    assert type(codec.decode(codec.encode(Path("a/b"), "x"), "x")) is PurePosixPath
    raw = codec.decode(codec.encode(Path("/\udcc3(\udcff"), "x"), "x")
    assert str(raw).encode("utf-8", "surrogateescape") == b"/\xc3(\xff"


def test_path_tag_is_read_strictly() -> None:
    """Only the one tagged form is a path; anything else under the annotation is refused."""
    for text in ('{"$path":1}', '{"$path":"%"}', '{"$path":"YQ==","b":1}', "5", "null"):
        with pytest.raises(PayloadError, match=r"^x"):
            codec_for(Path).decode(text, "x")
    assert codec_for(Path).decode(f'{{"$path":"{base64.b64encode(b"a").decode()}"}}', "x") == Path("a")


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_depth_is_bounded_when_written() -> None:
    """As deep as the limit is written and read back, one deeper is refused, and so is what holds itself."""
    codec = codec_for(Any)
    deepest = _nested(PAYLOAD_DEPTH_MAX)
    assert codec.decode(codec.encode(deepest, "x"), "x") == deepest
    with pytest.raises(PayloadError, match=f"nested deeper than {PAYLOAD_DEPTH_MAX}"):
        codec.encode(_nested(PAYLOAD_DEPTH_MAX + 1), "x")
    endless = Tree("a")
    endless.children.append(endless)
    with pytest.raises(PayloadError, match="holds itself"):
        codec_for(Tree).encode(endless, "x")


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 5_000 + "]" * 5_000, "1e400", "-1e400", "NaN", "", "{", '"\ud800"', "9" * 5_000, '{"a":1}x'])
def test_bad_text_is_a_payload_error(text: str) -> None:
    """Whatever stands in a row, reading it gives a PayloadError that names the field, never another error."""
    for annotation in (Any, int, float, Order, list[Tree], Path, Model):
        with pytest.raises(PayloadError, match=r"^result of step a"):
            codec_for(annotation).decode(text, "result of step a")


def test_wrong_stored_type_is_named() -> None:
    """A text of another type says where it differs."""
    with pytest.raises(PayloadError, match=r"not Order: .*\$\.items\[0\]\.price"):
        codec_for(Order).decode('{"id":"a","items":[{"name":"a","price":"x"}]}', "input")
    with pytest.raises(PayloadError, match="NaN"):
        codec_for(list[Decimal]).decode('["NaN"]', "input")


def test_what_a_class_changes_when_it_is_read_is_refused() -> None:
    """A `__post_init__` that would change the stored value on reading is found out when it is written."""
    codec = codec_for(Rounded)
    assert codec.decode(codec.encode(Rounded(27), "x"), "x") == Rounded(20)
    value = Rounded(20)
    value.value = 27
    with pytest.raises(PayloadError, match="read back as something else"):
        codec.encode(value, "x")


@dataclass
class Newer:
    name: str
    price: float
    tags: list[str]
    added: int = 7


def test_new_field_with_default_is_same() -> None:
    """A stored input without a field that has a default today is the same input; another value, or a text that cannot be read, is not."""
    codec = codec_for(Newer)
    new = codec.encode(Newer("a", 1.0, []), "input")
    assert codec.is_same('{"name":"a","price":1,"tags":[]}', new)
    assert codec.is_same(new, new)
    assert not codec.is_same('{"name":"b","price":1.0,"tags":[]}', new)
    assert not codec.is_same('{"price":1.0}', new)
    assert not codec.is_same("{", new)


def test_left_out_field_is_written_as_its_default() -> None:
    """A value that was read from an older text has the text of one that was made today."""
    codec = codec_for(list[Newer])
    old = codec.decode('[{"name":"a","price":1.0,"tags":[]}]', "x")
    assert codec.encode(old, "x") == '[{"name":"a","price":1.0,"tags":[],"added":7}]'


@pytest.mark.parametrize(
    "annotation", [complex, type, range, str | Path, dict[Path, int], dict[float, int], dict[int | str, int], msgspec.Raw, memoryview, Item | Order, "Item", 5]
)
def test_unsupported_annotation_is_a_usage_error(annotation: Any) -> None:
    """A type that cannot be kept is refused when the codec is made, with the type named."""
    with pytest.raises(UsageError) as caught:
        codec_for(annotation)
    assert not isinstance(caught.value, PayloadError)
    assert len(str(caught.value)) > 40


@dataclass
class Unknown:
    part: "Missing"  # type: ignore[name-defined]  # noqa: F821 - what is tested


def test_unresolvable_field_is_a_usage_error() -> None:
    """A class whose own annotation names nothing says which name it is and the remedy."""
    with pytest.raises(UsageError, match=r"'Missing' is not defined.*TYPE_CHECKING"):
        codec_for(Unknown)


def test_codec_is_made_once() -> None:
    """The same annotation gives the same codec, and one that cannot be hashed works too."""
    assert codec_for(Order) is codec_for(Order)
    assert codec_for(Annotated[int, []]).encode(1, "x") == "1"
    assert codec_for(Literal[1]) is not codec_for(Literal[True])


def test_pydantic_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the application has not imported pydantic, its models are unknown classes, and nothing here imports it."""
    monkeypatch.delitem(sys.modules, "pydantic")

    class Late(pydantic.BaseModel):
        a: int

    with pytest.raises(UsageError, match="Late"):
        codec_for(Late)
    assert "pydantic" not in sys.modules


def test_value_given_is_never_changed() -> None:
    """Writing sets in order works on copies."""
    value = Marked(frozenset("ab"), {"a": {1}})
    codec_for(Marked).encode(value, "x")
    assert value == Marked(frozenset("ab"), {"a": {1}})
    assert type(value.more["a"]) is set
