"""Tasks: what is refused at their declaration, and with which words."""

import functools
import inspect
from dataclasses import dataclass
from typing import Any

import pytest

from outlast.blocking_context import BlockingContext
from outlast.context import Context
from outlast.errors import UsageError
from outlast.retry import ONCE, RetryPolicy
from outlast.task import Task, task
from outlast.task_ref import TaskRef


@dataclass
class Order:
    number: int


@task
async def bare(ctx: Context[Any], order: Order) -> str:
    """Do it."""
    return str(order.number)


@task("import_asset", version=2, retry=RetryPolicy(maximum_attempts=3))
async def named(ctx, order: Order) -> int:
    return order.number


@task()
async def lonely(ctx: Context) -> None: ...


class SpecialContext(Context[Any]):
    """A user's own."""


class SpecialBlockingContext(BlockingContext[Any]):
    """The same for `def` bodies."""


@task
def plain(ctx: BlockingContext[Any], order: Order) -> str:
    """Do it plainly."""
    return str(order.number)


def test_a_bare_task_has_the_functions_name_and_the_defaults():
    """Version 1, one attempt, types from the annotations."""
    assert (bare.name, bare.version, bare.retry, bare.takes_input) == ("bare", 1, ONCE, True)
    assert isinstance(bare, Task)
    assert isinstance(bare, TaskRef)
    assert bare.__doc__ == "Do it."
    assert repr(bare) == "<task bare v1>"
    assert bare.input.encode(Order(3), "input") == '{"number":3}'
    assert bare.output.encode("x", "result") == '"x"'


def test_options_of_the_declaration():
    """Name, version and policy are what was written; the context needs no annotation."""
    assert (named.name, named.version, named.retry.maximum_attempts) == ("import_asset", 2, 3)


def test_task_without_input_takes_null():
    """Its input is None and nothing else."""
    assert not lonely.takes_input
    assert lonely.input.encode(None, "input") == "null"
    assert lonely.output.encode(None, "result") == "null"


def test_two_versions_are_two_tasks():
    """A kind may be there in several versions."""
    again = task("bare", version=2)(bare.body)
    assert (again.name, again.version) == ("bare", 2)


def test_context_of_the_users_own_is_a_context():
    """Classes below `Context`, and `Any`, are accepted as the first parameter's type."""

    async def special(ctx: SpecialContext, order: Order) -> None: ...

    async def anything(ctx: Any) -> None: ...

    def special_plain(ctx: SpecialBlockingContext, order: Order) -> None: ...

    def without_annotation(ctx, order: Order): ...

    assert task(special).takes_input
    assert not task(anything).takes_input
    assert task(special_plain).takes_input
    assert task(without_annotation).takes_input


def test_a_def_body_is_declared_as_an_async_one():
    """It has the same name, defaults and types; engines run a coroutine that serves it, and the function can be declared again."""
    assert (plain.name, plain.version, plain.retry, plain.takes_input, plain.__doc__) == ("plain", 1, ONCE, True, "Do it plainly.")
    assert plain.input.encode(Order(3), "input") == '{"number":3}'
    assert plain.output.encode("x", "result") == '"x"'
    assert inspect.iscoroutinefunction(plain.make_body)
    assert bare.make_body is bare.body
    assert task("plain", version=2)(plain.body).version == 2


async def without_context() -> None: ...
async def input_first(order: Order) -> None: ...
async def input_as_context(order: Order, ctx: Context) -> None: ...
async def two_inputs(ctx: Context, order: Order, more: int) -> None: ...
async def with_default(ctx: Context, order: Order = Order(1)) -> None: ...  # noqa: B008 - what is refused
async def keyword_only(ctx: Context, *, order: Order) -> None: ...
async def variadic(ctx: Context, *orders: Order) -> None: ...
async def keywords(ctx: Context, **orders: Order) -> None: ...
async def unresolvable(ctx: Context, order: "Missing") -> None: ...  # noqa: F821 - what is refused
async def unresolvable_result(ctx: Context) -> "Missing": ...  # noqa: F821 - what is refused
async def generator(ctx: Context):
    yield 1


def blocking(ctx: Context, order: Order) -> None: ...
async def awaiting(ctx: BlockingContext, order: Order) -> None: ...
def plain_without_context() -> None: ...
def plain_input_first(order: Order) -> None: ...
def plain_generator(ctx: BlockingContext):
    yield 1


@functools.wraps(bare.body)
def decorated(*args: Any) -> Any:
    return bare.body(*args)


decorated.__name__ = "decorated"


REFUSED = [
    (without_context, "the body has no context: write `async def without_context(ctx: Context, ...)`"),
    (input_first, "the first parameter is the context: write `async def input_first(ctx: Context, ...)`"),
    (input_as_context, "the first parameter is the context"),
    (two_inputs, "the body has 2 inputs: put them into one dataclass"),
    (with_default, "an input has no default"),
    (keyword_only, "a body takes a context and at most one input, by position"),
    (variadic, "a body takes a context and at most one input, by position"),
    (keywords, "a body takes a context and at most one input, by position"),
    (unresolvable, "an annotation cannot be resolved (name 'Missing' is not defined): import its type at the top of the module"),
    (unresolvable_result, "an annotation cannot be resolved"),
    (blocking, "a `def` body takes a BlockingContext: write `def blocking(ctx: BlockingContext, ...)`, or `async def blocking(ctx: Context, ...)`"),
    (awaiting, "an `async def` body takes a Context: write `async def awaiting(ctx: Context, ...)`, or `def awaiting(ctx: BlockingContext, ...)`"),
    (decorated, "a `def` body takes a BlockingContext"),
    (plain_without_context, "the body has no context: write `def plain_without_context(ctx: BlockingContext, ...)`"),
    (plain_input_first, "the first parameter is the context: write `def plain_input_first(ctx: BlockingContext, ...)`"),
    (generator, "a body is a function made with `async def`, or with `def` and a name, and no generator"),
    (plain_generator, "a body is a function made with `async def`, or with `def` and a name, and no generator"),
    (lambda ctx: None, "a body is a function made with `async def`, or with `def` and a name, and no generator"),
]


@pytest.mark.parametrize(("body", "message"), REFUSED, ids=[body.__name__ for body, _ in REFUSED])
def test_body_that_cannot_run_is_refused_at_its_declaration(body, message):
    """With and without parentheses the message has the task's name, what is wrong and what to write."""
    for declare in (task, task()):
        with pytest.raises(UsageError) as caught:
            declare(body)
        assert str(caught.value).startswith(f"task {body.__name__}: ")
        assert message in str(caught.value)


@pytest.mark.parametrize("body", [5, [], object()])
def test_what_is_no_function_is_no_task(body):
    """A forgotten pair of parentheses or a number is named as such."""
    with pytest.raises(UsageError, match="@task takes a function, not"):
        task(body)


@pytest.mark.parametrize("name", ["", " ", "a ", " a", "a\nb", "a\0", "x" * 201])
def test_name_that_cannot_be_found_again_is_refused(name):
    """An empty name is not replaced by the function's: it was written for a reason, and is wrong."""
    with pytest.raises(UsageError, match="task name .*: write 1 to 200 printable characters, without spaces at the ends"):
        task(name)(bare.body)


@pytest.mark.parametrize("version", [0, -1, 2**31, 1.0, True, "1", None])
def test_version_is_a_whole_number(version):
    """It is a column of four bytes in every database."""
    with pytest.raises(UsageError, match=f"version of bare is {version!r}: write a whole number from 1"):
        task("bare", version=version)(bare.body)


def test_wrong_retry_is_refused():
    """A number is no policy."""
    with pytest.raises(UsageError, match=r"retry of bare is 3: write a RetryPolicy\(\.\.\.\)"):
        task("bare", retry=3)(bare.body)


def test_calling_a_task_is_refused_with_what_to_write():
    """It would run the body undurably."""
    with pytest.raises(UsageError, match=r"bare is a task: `await engine\.enqueue\(bare, \.\.\.\)` runs it durably"):
        bare(None, Order(1))
