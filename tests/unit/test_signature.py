"""What `signature_of` promises: one text for one call, Python's own refusals, and errors that name function and parameter."""

import functools
import gc
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

from outlast.errors import PayloadError, UsageError
from outlast.limits import PAYLOAD_BYTES_MAX
from outlast.signature import Signature, signature_of

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Order:
    price: float


def plain(a: int, b: str = "x", c: Path | None = None) -> Order:
    raise NotImplementedError


async def awaited(order: Order, *more: int, flag: bool = False, **rest: str) -> list[Order]:
    raise NotImplementedError


def keyword(a: int, *, b: int) -> None: ...


def untyped(a, b=1):  # type: ignore[no-untyped-def]  # what is tested
    return a, b


class Service:
    def method(self, a: int) -> str:
        raise NotImplementedError

    @classmethod
    def of_class(cls, a: int) -> str:
        raise NotImplementedError

    def __call__(self, a: int) -> bytes:
        raise NotImplementedError


# Digests of these texts are compared at replay, years later: a change of one breaks the runs that are under way.
FROZEN = [
    (plain, (1,), {}, "[1]"),
    (plain, (), {"a": 1}, "[1]"),
    (plain, (1, "y"), {}, '[1,"y"]'),
    (plain, (1,), {"b": "y"}, '[1,"y"]'),
    (plain, (), {"b": "y", "a": 1}, '[1,"y"]'),
    (plain, (1, "x"), {}, '[1,"x"]'),
    (plain, (1,), {"c": Path("p")}, '{"a":1,"c":"p"}'),
    (plain, (), {"c": None, "a": 1}, '{"a":1,"c":null}'),
    (keyword, (1,), {"b": 2}, '{"a":1,"b":2}'),
    (keyword, (), {"b": 2, "a": 1}, '{"a":1,"b":2}'),
    (awaited, (Order(1), 2, 3), {}, '[{"price":1.0},2,3]'),
    (awaited, (Order(1.0), 2), {"flag": True, "z": "z"}, '{"order":{"price":1.0},"*":[2],"flag":true,"**":{"z":"z"}}'),
    (untyped, ([1, (2,)],), {}, "[[1,[2]]]"),
    (Service().method, (1,), {}, "[1]"),
    (Service.of_class, (1,), {}, "[1]"),
    (Service(), (1,), {}, "[1]"),
    (functools.partial(plain, 1), ("y",), {}, '["y"]'),
    (functools.partial(plain, b="y"), (1,), {}, "[1]"),
    (lambda: None, (), {}, ""),
    (lambda *more: None, (), {}, ""),
]


@pytest.mark.parametrize(("function", "args", "kwargs", "text"), FROZEN, ids=map(str, range(len(FROZEN))))
def test_text_is_frozen_and_comes_back(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], text: str) -> None:
    """A call has one text however it is written, and what is read from it has that text too."""
    signature = signature_of(function)
    assert signature.encode_arguments(args, kwargs, "arguments") == text
    assert signature.encode_arguments(*signature.decode_arguments(text, "arguments"), "arguments") == text


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, "x", None, 4), {}), ((1,), {"a": 2}), ((1,), {"nothing": 2})])
def test_wrong_call_is_a_type_error(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Arguments that Python would refuse give its error, with the function named."""
    with pytest.raises(TypeError, match=r"plain\(\) "):
        signature_of(plain).encode_arguments(args, kwargs, "arguments")
    with pytest.raises(TypeError, match="'b'"):
        signature_of(keyword).encode_arguments((1,), {}, "arguments")


def test_wrong_argument_is_named() -> None:
    """A value that cannot be stored is named by its parameter, whichever form the text would have."""
    for function, args, kwargs, where in [
        (plain, (1, 2), {}, "arguments.b: expected str"),
        (plain, ("1",), {"c": None}, "arguments.a: expected int"),
        (awaited, (Order("x"),), {}, "arguments.order.price: expected float"),  # type: ignore[arg-type]  # what is refused
        (awaited, (Order(1), 2, "3"), {}, "arguments.more: expected int"),
        (awaited, (Order(1), 2, "3"), {"flag": True}, "arguments.more[1]: expected int"),
        (awaited, (Order(1),), {"z": 1}, "arguments.rest['z']: expected str"),
        (untyped, (1, {2}), {}, "arguments.b: set would not"),
    ]:
        with pytest.raises(PayloadError) as caught:
            signature_of(function).encode_arguments(args, kwargs, "arguments")
        assert str(caught.value).startswith(where)


@pytest.mark.parametrize(
    "text", ["[", "{", "5", "null", "[1,2]", '["x"]', "[1,null,null,4]", '{"a":1,"gone":2}', '{"a":"1"}', "[" * 100_000, '{"a":' * 100_000]
)
def test_bad_text_is_a_payload_error(text: str) -> None:
    """Stored arguments that today's function does not take give a PayloadError, never another error."""
    with pytest.raises(PayloadError, match=r"^arguments"):
        signature_of(plain).decode_arguments(text, "arguments")


def test_all_arguments_together_are_bounded() -> None:
    """Two arguments that are small enough each are refused where they are too large together, in both forms."""
    half = "x" * (PAYLOAD_BYTES_MAX // 2)
    with pytest.raises(PayloadError, match="file"):
        signature_of(untyped).encode_arguments((half, half), {}, "arguments")
    with pytest.raises(PayloadError, match="file"):
        signature_of(awaited).encode_arguments((Order(1),), {"y": half, "z": half}, "arguments")


def test_result_is_what_awaiting_gives() -> None:
    """The result codec is that of the value, for `async def` and for functions that return something to await."""

    def later() -> Awaitable[int]:
        raise NotImplementedError

    def coroutine() -> Coroutine[Any, Any, int]:
        raise NotImplementedError

    for function, annotation in [(awaited, list[Order]), (later, int), (coroutine, int), (plain, Order), (untyped, Any), (keyword, type(None)), (Order, Order)]:
        assert signature_of(function).result.annotation == annotation
    assert signature_of(Service()).result.annotation is bytes


def test_supplied_parameters_are_not_looked_at() -> None:
    """What the engine gives first is not stored and can have any type, even one that nobody can resolve."""

    def transfer(connection: "Connection", order: Order) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - what is tested

    assert signature_of(transfer, supplied=1).encode_arguments((Order(1),), {}, "x") == '[{"price":1.0}]'
    with pytest.raises(UsageError, match=r"transfer: the annotation of parameter 'connection' cannot be resolved.*TYPE_CHECKING"):
        signature_of(transfer)


def test_unsupported_annotation_is_named() -> None:
    """A parameter or result that cannot be kept is an error of the function's, with the place."""

    def bad_parameter(a: int, b: Callable[[], None]) -> None: ...

    def bad_result() -> complex:
        raise NotImplementedError

    def lost_result() -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821 - what is tested
        raise NotImplementedError

    for function, place in [(bad_parameter, "parameter 'b'"), (bad_result, "its result"), (lost_result, "its result")]:
        with pytest.raises(UsageError, match=rf"{function.__name__}.*{place}"):
            signature_of(function)
    with pytest.raises(UsageError, match="wrap it"):
        signature_of(min)


def test_decorated_function_is_known_by_what_it_wraps() -> None:
    """`functools.wraps` leaves names and annotations as they were."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def inner(*args: P.args, **kwargs: P.kwargs) -> R:
            return function(*args, **kwargs)

        return inner

    assert signature_of(decorate(plain)).encode_arguments((1,), {"b": "y"}, "x") == '[1,"y"]'


def test_signature_is_made_once_and_lets_its_function_go() -> None:
    """The same function and method give the same signature, and a function made for one call is not kept."""
    assert signature_of(plain) is signature_of(plain)
    assert signature_of(Service().method) is signature_of(Service().method)
    assert isinstance(signature_of(Service.method), Signature)
    assert signature_of(Service.method) is not signature_of(Service().method)

    def made(a: int) -> int:
        return a

    signature_of(made).encode_arguments((1,), {}, "x")
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None
