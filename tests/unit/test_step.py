"""Steps: what can be declared one, what is refused and with which words, and what a call may change."""

import asyncio
import functools
from datetime import timedelta

import pytest

from outlast.context import as_step
from outlast.errors import UsageError
from outlast.retry import NETWORK, STEP_DEFAULT, RetryPolicy
from outlast.scope import BODY
from outlast.step import Step, step


@step
def plain(text: str, times: int = 1) -> str:
    """Repeat a text."""
    return text * times


@step(name="fetch page", retry=NETWORK, timeout="30s")
async def fetch(url: str) -> str:
    return url


@step(process=True)
def crunch(number: int) -> int:
    return number * 2


class Service:
    """Methods as steps."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    @step
    def join(self, text: str) -> str:
        return self.prefix + text

    @step(retry=NETWORK)
    async def ask(self, text: str) -> str:
        return self.prefix + text

    @staticmethod
    @step
    def alone(text: str) -> str:
        return text

    def undeclared(self, text: str) -> str:
        return self.prefix + text


class Callable:
    """An object that can be called."""

    async def __call__(self, text: str) -> str:
        return text


def test_a_bare_step_has_the_functions_name_and_the_defaults():
    """Nothing has to be said to make a function a step, and it still looks like itself."""
    assert (plain.options.name, plain.options.retry, plain.options.timeout, plain.options.process) == ("plain", STEP_DEFAULT, None, False)
    assert plain.__name__ == "plain"
    assert plain.__doc__ == "Repeat a text."
    assert plain.__module__ == __name__
    assert repr(plain) == "<step plain>"
    assert not plain.is_async


def test_options_of_the_declaration():
    """Name, retry and time-out are the step's own."""
    assert fetch.options.name == "fetch page"
    assert fetch.options.retry is NETWORK
    assert fetch.options.timeout == timedelta(seconds=30)
    assert fetch.is_async
    assert crunch.options.process


def test_outside_of_a_body_a_step_is_the_function():
    """In tests and inside other steps it is called as ever."""
    assert plain("a", times=3) == "aaa"
    assert asyncio.run(fetch("u")) == "u"
    assert Service("x").join("y") == "xy"
    assert asyncio.run(Service("x").ask("y")) == "xy"
    assert Service.alone("y") == Service("x").alone("y") == "y"


def test_inside_a_body_a_direct_call_is_refused_with_what_to_write():
    """It would run at every replay and be remembered by none."""
    token = BODY.set(object())
    try:
        with pytest.raises(UsageError, match=r"plain\(\.\.\.\) inside a task body would not be remembered: write `await ctx\.step\(plain, \.\.\.\)`"):
            plain("a")
        with pytest.raises(UsageError, match=r"await ctx\.step\(ask, "):
            Service("x").ask("y")
    finally:
        BODY.reset(token)


def test_method_step_travels_without_its_instance():
    """Only the arguments are encoded; the instance is found through the services."""
    bound = Service("x").join
    assert isinstance(bound, Step)
    assert bound.options is Service.join.options
    assert bound.signature.encode_arguments(("y",), {}, "arguments") == '["y"]'
    assert bound.signature is Service("z").join.signature
    assert Service("x").ask.is_async
    assert Service("x").ask.with_options(name="other").function("y").close() is None


def test_with_options_changes_one_call_only():
    """The declared step stays what it is; what was computed once is kept."""
    policy = RetryPolicy(maximum_attempts=9)
    signature = plain.signature
    changed = plain.with_options(name="other", retry=policy, timeout=2, inserted=True)
    assert (changed.options.name, changed.options.retry, changed.options.timeout, changed.options.inserted) == (
        "other",
        policy,
        timedelta(seconds=2),
        True,
    )
    assert changed.signature is signature
    assert plain.options.name == "plain"
    assert plain.with_options().options == plain.options
    assert changed.with_options(inserted=False).options.inserted is False
    assert changed("a") == "a"


def test_a_callable_object_that_is_async_is_async():
    """It must be awaited on the loop and not be called in a thread."""
    declared = step(Callable())
    assert declared.is_async
    assert declared.options.name == declared.__name__ == "Callable"
    assert asyncio.run(declared("a")) == "a"


def test_partials_have_the_name_of_their_function():
    """The history calls a partial by what it calls."""
    assert step(functools.partial(functools.partial(plain.function, "a"), times=2)).options.name == "plain"


BAD_NAMES = ["", "a/b", "a:1", "$now", "x" * 201, "a\nb", "a\0b", 3, b"a"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_name_that_cannot_be_in_a_key_is_refused(name):
    """Slash, colon and dollar have a meaning in keys; what cannot be printed cannot be found again."""
    with pytest.raises(UsageError, match=r"step name .* write 1 to 200 printable characters without '/', ':' and '\$'"):
        step(name=name)(plain.function)
    with pytest.raises(UsageError, match="step name"):
        plain.with_options(name=name)


def test_lambda_without_a_name_is_refused_and_with_one_is_not():
    """The message says how to give it one, and that works."""
    with pytest.raises(UsageError, match=r'a lambda has no name for the history: write step\(name="\.\.\."\)\(function\)'):
        step(lambda: 1)
    assert step(name="one")(lambda: 1)() == 1


def local_process_step():
    @step(process=True)
    def local() -> None: ...


def method_process_step():
    class Holder:
        @step(process=True)
        def method(self) -> None: ...


@pytest.mark.parametrize(
    "declare",
    [
        local_process_step,
        method_process_step,
        lambda: step(process=True, name="one")(lambda: None),
        lambda: step(process=True)(functools.partial(plain.function, "a")),
        lambda: step(process=True)(Service.undeclared),
    ],
)
def test_process_step_that_another_process_could_not_find_is_refused(declare):
    """Local functions, methods, lambdas and partials have no address of their own."""
    with pytest.raises(UsageError, match="process=True takes a module-level function, because another process must find it"):
        declare()


@pytest.mark.parametrize("timeout", [0, -1, "soon", float("nan"), True, timedelta(0)])
def test_wrong_timeout_is_refused_where_it_is_written(timeout):
    """No time-out is left out; zero is a mistake."""
    with pytest.raises(UsageError, match="^timeout is "):
        step(timeout=timeout)
    with pytest.raises(UsageError, match="^timeout is "):
        plain.with_options(timeout=timeout)


def test_wrong_retry_is_refused_where_it_is_written():
    """A number is no policy; the message says what is."""
    for declare in (lambda: step(retry=3), lambda: plain.with_options(retry=3)):
        with pytest.raises(UsageError, match=r"retry is 3: write a RetryPolicy\(\.\.\.\)"):
            declare()


@pytest.mark.parametrize("function", [3, "plain", [plain]])
def test_what_cannot_be_called_is_no_step(function):
    """A step takes a function."""
    with pytest.raises(UsageError, match="@step takes a function, not"):
        step(function)


def test_step_above_staticmethod_is_refused():
    """In the other order it would be taken for a method; the message gives the right one."""
    with pytest.raises(UsageError, match="write @staticmethod above @step at join"):
        step(staticmethod(join))


def join(text: str) -> str:
    return text


def test_unresolvable_annotation_is_named_when_the_step_is_used():
    """The function, the parameter and the remedy are in the message."""

    @step
    def lost(order: "Missing") -> None: ...  # noqa: F821 - that nobody can resolve it is what is tested

    with pytest.raises(UsageError, match="lost.*'order'.*Missing"):
        _ = lost.signature


# --- what a body may hand to ctx.step -------------------------------------------------------------------------------------
def test_functions_methods_and_partials_become_steps_with_their_arguments():
    """A partial's arguments are the call's own, and a plain method is bound to its instance."""
    assert as_step(plain, ("a",)) == (plain, ("a",))
    declared, args = as_step(functools.partial(join, "a"), ())
    assert (declared.options.name, args) == ("join", ("a",))
    assert as_step(join, ())[0] is as_step(join, ())[0]
    bound, args = as_step(Service("x").undeclared, ("y",))
    assert (bound.options.name, bound.function(*args)) == ("undeclared", "xy")
    assert bound.signature.encode_arguments(args, {}, "arguments") == '["y"]'
    assert as_step(functools.partial(Service("x").join, "y"), ())[0].function("y") == "xy"


@pytest.mark.parametrize(
    ("handed", "message"),
    [
        (functools.partial(join, text="a"), "a partial with keywords is not one step's call"),
        ("join", "ctx.step takes a function and its arguments, not 'join'; write"),
        (None, "without calling it"),
        (lambda: 1, "a lambda has no name"),
    ],
)
def test_what_is_no_function_is_refused_with_what_to_write(handed, message):
    """The usual mistakes have their own words."""
    with pytest.raises(UsageError) as caught:
        as_step(handed, ())
    assert message in str(caught.value)
