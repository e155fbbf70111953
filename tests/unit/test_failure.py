"""Failure: any exception becomes data, whatever it does when it is looked at."""

import msgspec
import pytest

from outlast.errors import FinalError
from outlast.failure import Failure, capture, type_name
from outlast.limits import ERROR_BYTES_MAX


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """Return the error with a traceback of its own."""
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def hostile(method: str, answer) -> BaseException:
    """Return an error whose class answers a method, or shows an attribute, in its own way."""
    return raised(type("HostileError", (Exception,), {method: answer})())


def raises(*_, **__):
    raise RuntimeError("do not look at me")


def exits(*_, **__):
    raise SystemExit(3)


def interrupts(*_, **__):
    raise KeyboardInterrupt


def recurses(self):
    return str(self)


class Text(str):
    """A text that cannot be used as one."""

    __slots__ = ()

    def __len__(self):
        raise RuntimeError

    replace = encode = __getitem__ = raises


class DemandingError(Exception):
    """Cannot be made from its own `args`."""

    def __init__(self, code, *, reason):
        super().__init__(code)
        self.reason = reason


class Unpicklable(Exception):  # noqa: N818 - the name says what it is for
    """Holds what cannot be copied."""

    def __init__(self):
        super().__init__(lambda: None)
        self.generator = (number for number in range(3))

    __reduce__ = __reduce_ex__ = raises


class Metaclass(type):
    """Lies about everything that can be asked of a class."""

    __module__ = property(raises)
    __name__ = property(raises)
    __mro__ = property(raises)
    __instancecheck__ = __subclasscheck__ = raises


class LyingError(Exception, metaclass=Metaclass):
    """An error of such a class."""


class Group(ExceptionGroup):
    """A group that hides its members."""

    exceptions = property(raises)


def cyclic() -> BaseException:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def own_cause() -> BaseException:
    error = ValueError("its own cause")
    error.__cause__ = error
    return error


def long_chain() -> BaseException:
    error: BaseException = ValueError("x" * 50_000)
    for number in range(3_000):
        error = raised(ValueError(f"{number} " + "y" * 5_000), error)
    return error


def deep_group(depth: int, width: int) -> BaseException:
    if depth == 0:
        return raised(ValueError("leaf " + "z" * 9_000))
    return raised(ExceptionGroup("g" * 3_000, [deep_group(depth - 1, width) for _ in range(width)]))


def group_with_itself_below() -> BaseException:
    leaf = ValueError("leaf")
    group = ExceptionGroup("loop", [leaf])
    leaf.__cause__ = group
    return group


def deep_recursion() -> BaseException:
    def down():
        return down()

    try:
        down()
    except RecursionError as error:
        return error
    raise AssertionError


def odd_class(**attributes) -> BaseException:
    return raised(type("OddError", (Exception,), attributes)())


def many_bases() -> BaseException:
    cls: type[Exception] = Exception
    for number in range(300):
        cls = type(f"Level{number}" * 20, (cls,), {})
    return raised(cls("deep"))


HOSTILE = {
    "plain": lambda: raised(ValueError("plain")),
    "without traceback": lambda: ValueError("never raised"),
    "no message": lambda: raised(ValueError()),
    "str raises": lambda: hostile("__str__", raises),
    "repr raises": lambda: hostile("__repr__", raises),
    "str exits": lambda: hostile("__str__", exits),
    "str interrupts": lambda: hostile("__str__", interrupts),
    "str recurses": lambda: hostile("__str__", recurses),
    "str returns no text": lambda: hostile("__str__", lambda self: 3),
    "str returns None": lambda: hostile("__str__", lambda self: None),
    "str returns hostile text": lambda: hostile("__str__", lambda self: Text("hidden")),
    "str is huge": lambda: hostile("__str__", lambda self: "h" * 20_000_000),
    "getattribute raises": lambda: hostile("__getattribute__", raises),
    "class property lies": lambda: hostile("__class__", property(lambda self: int)),
    "class property raises": lambda: hostile("__class__", property(raises)),
    "cause property raises": lambda: hostile("__cause__", property(raises)),
    "context property raises": lambda: hostile("__context__", property(raises)),
    "traceback property raises": lambda: hostile("__traceback__", property(raises)),
    "args property raises": lambda: hostile("args", property(raises)),
    "eq and hash raise": lambda: raised(type("UnequalError", (Exception,), {"__eq__": raises, "__hash__": raises})()),
    "bool raises": lambda: hostile("__bool__", raises),
    "module is None": lambda: odd_class(__module__=None),
    "module is no text": lambda: odd_class(__module__=Text("outlast")),
    "qualname with NUL": lambda: odd_class(__qualname__="a\0b\ud800"),
    "qualname is huge": lambda: odd_class(__qualname__="q" * 1_000_000),
    "metaclass lies": lambda: raised(LyingError("lies")),
    "many bases": many_bases,
    "needs other arguments": lambda: raised(DemandingError(3, reason="why")),
    "unpicklable": lambda: raised(Unpicklable()),
    "NUL": lambda: raised(ValueError("a\0b")),
    "lone surrogates": lambda: raised(ValueError("\ud800\udfff" * 30_000)),
    "control characters": lambda: raised(ValueError("\x01" * 30_000)),
    "quotes": lambda: raised(ValueError('"\\\n' * 30_000)),
    "emoji": lambda: raised(ValueError("\N{PILE OF POO}" * 30_000)),
    "bytes": lambda: raised(ValueError(b"\xff" * 30_000)),
    "huge message": lambda: raised(ValueError("m" * 5_000_000)),
    "cyclic causes": cyclic,
    "its own cause": own_cause,
    "long chain": long_chain,
    "deep recursion": deep_recursion,
    "deep group": lambda: deep_group(6, 2),
    "wide group": lambda: deep_group(1, 2_000),
    "broad group": lambda: deep_group(3, 12),
    "group hides its members": lambda: Group("hides", [ValueError("hidden")]),
    "group below itself": group_with_itself_below,
    "base exception": lambda: raised(KeyboardInterrupt("stop")),
    "base group": lambda: BaseExceptionGroup("base", [SystemExit(2), ValueError("both")]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_exception_becomes_bounded_data(name):
    """Making a failure never raises, and the result is text that every database takes, under the limit, and read back equal."""
    failure = capture(HOSTILE[name]())
    text = msgspec.json.encode(failure)
    assert len(text) < ERROR_BYTES_MAX
    assert b"\\u0000" not in text
    assert msgspec.json.decode(text, type=Failure) == failure
    assert failure.type
    assert str(failure)


def test_failure_says_what_happened():
    """Type, ancestors, message and place are there as in a traceback."""
    failure = capture(raised(FileNotFoundError(2, "no such file")))
    assert failure.type == "builtins.FileNotFoundError"
    assert failure.message == "[Errno 2] no such file"
    assert failure.bases == ("builtins.OSError", "builtins.Exception")
    assert "in raised" in failure.traceback
    assert str(failure) == "FileNotFoundError: [Errno 2] no such file"
    assert str(capture(ValueError())) == "ValueError"


def test_is_a_compares_recorded_names():
    """The recorded error is of its class and of every class above it, and of no other."""
    failure = capture(FileNotFoundError("x"))
    assert failure.is_a(FileNotFoundError)
    assert failure.is_a(OSError)
    assert failure.is_a(Exception)
    assert not failure.is_a(PermissionError)
    assert not failure.is_a(ValueError)


def test_is_a_needs_no_import_of_what_was_raised():
    """Names from a class that is gone compare as well as any."""
    failure = Failure("shop.errors.SoldOutError", "gone", bases=("shop.errors.ShopError", "builtins.Exception"))
    assert failure.is_named("shop.errors.ShopError")
    assert failure.is_a(Exception)


def test_a_class_is_recognised_under_any_odd_name():
    """What is cut or cleaned in a name is cut alike on both sides of the comparison."""
    for error in (HOSTILE["qualname is huge"](), HOSTILE["qualname with NUL"](), HOSTILE["metaclass lies"]()):
        assert capture(error).is_a(type(error))
        assert "\0" not in type_name(type(error))


def test_causes_are_kept_as_python_shows_them():
    """The explicit cause goes before the context, and a suppressed context is not shown."""
    explicit = raised(ValueError("effect"), KeyError("cause"))
    assert capture(explicit).cause.type == "builtins.KeyError"
    during = ValueError("during")
    during.__context__ = KeyError("context")
    assert capture(during).cause.message == "'context'"
    during.__suppress_context__ = True
    assert capture(during).cause is None


def test_causes_that_bite_their_tail_are_told_once():
    """Each error of a circle is there one time, in its order."""
    failure = capture(cyclic())
    assert (failure.message, failure.cause.message, failure.cause.cause) == ("first", "'second'", None)
    assert capture(own_cause()).cause is None


def test_long_texts_keep_both_ends():
    """The start says what, the end says where: the middle goes, and its size is said."""
    message = capture(ValueError("start" + "x" * 100_000 + "end")).message
    assert message.startswith("startxxx")
    assert message.endswith("xxxend")
    assert "characters left out" in message


def test_small_failures_are_complete():
    """The bounds cut nothing from an ordinary error with an ordinary cause."""
    failure = capture(raised(ValueError("v" * 2_000), KeyError("k" * 2_000)))
    assert failure.message == "v" * 2_000
    assert failure.cause.message == repr("k" * 2_000)


def test_group_keeps_its_members():
    """The members of a group are failures of their own."""
    failure = capture(raised(ExceptionGroup("both", [ValueError("one"), OSError("two")])))
    assert [member.type for member in failure.members] == ["builtins.ValueError", "builtins.OSError"]


def test_final_error_is_final_wherever_it_is_found():
    """What a step said by raising `FinalError` is kept, also below it, inside a group and in a class of the user's own."""

    class RefusedError(FinalError):
        pass

    assert capture(FinalError("no")).is_final
    assert capture(RefusedError("no")).is_final
    assert not capture(ValueError("no")).is_final
    assert capture(ValueError("no"), is_final=True).is_final
    assert [member.is_final for member in capture(ExceptionGroup("g", [FinalError("a"), ValueError("b")])).members] == [True, False]
    assert not capture(raised(ValueError("effect"), FinalError("cause"))).is_final
