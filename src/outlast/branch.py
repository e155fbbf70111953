"""Branches: the asyncio tasks of a body, seen and named from outside.

Theory of operation. A body may create tasks (`gather`, `TaskGroup`, `create_task`); each is a branch with a path, so
that its durable calls have the same identity whatever finishes first. A task factory on the loop gives every task that
is created inside a body a `Branch`, a coroutine that wraps the user's: it knows its path, counts its children and its
calls by name, sees what the task awaits, and can be closed from outside.
Closing is done by throwing `BranchClosed` into each user coroutine, in its own context (`finally` runs, `except
CancelledError` and `except Exception` do not), and then canceling the tasks: their wrappers answer, so that asyncio
ends them by itself. `close()` of the coroutine would not do: where a `finally` in a helper awaits, it raises a
RuntimeError into the caller of that helper, whose `except Exception` then goes on with the body.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Collection, Coroutine, Generator, Iterator
from contextvars import Context as Variables
from contextvars import ContextVar, copy_context
from types import FrameType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from outlast.errors import UsageError
from outlast.foreign_await import callbacks_of, foreign_place, futures_in
from outlast.scope import BODY

if TYPE_CHECKING:
    from outlast.body_thread import BodyThread

logger = logging.getLogger("outlast.branch")

NO_BODY = Variables()
"""A context that names no body: for callbacks which the engine schedules while a body runs."""
_CLOSE_TRIES = 100  # a `finally` that awaits has to be told once more for each await; more than this never ends


class BranchClosed(BaseException):
    """Thrown into a body that is closed; no code of a body should catch it."""


class Branch(Coroutine[Any, Any, Any]):
    """One asyncio task of a body."""

    __slots__ = ("branches", "children", "coroutine", "counts", "is_closed", "path", "task", "variables", "waiting")

    def __init__(self, branches: Branches, coroutine: Coroutine[Any, Any, Any], path: tuple[int, ...], variables: Variables) -> None:
        self.branches = branches
        self.coroutine = coroutine
        self.path = path
        self.variables = variables
        self.children = 0
        self.counts: dict[str, int] = {}
        self.waiting: Any = None
        self.is_closed = False
        self.task: asyncio.Task[Any] | None = None

    def send(self, value: Any) -> Any:
        if self.is_closed:
            raise asyncio.CancelledError
        self.waiting = None
        try:
            self.waiting = waiting = self.coroutine.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise _exit_refused(error) from error
        return waiting

    def throw(self, *error: Any) -> Any:
        if self.is_closed:
            raise asyncio.CancelledError
        self.waiting = None
        try:
            self.waiting = waiting = self.coroutine.throw(*error)
        except (SystemExit, KeyboardInterrupt) as exit:
            raise _exit_refused(exit) from exit
        return waiting

    def close(self) -> None:
        self.is_closed = True
        self.coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.coroutine.__await__()

    def number(self, name: str) -> int:
        """Return how many calls of this name the branch has made before, and count this one."""
        number = self.counts.get(name, 0)
        self.counts[name] = number + 1
        return number

    def shut(self) -> None:
        """Close the user's coroutine for good, however often its `finally` blocks await something."""
        self.is_closed = True
        self.variables.run(self._shut)

    def _shut(self) -> None:
        if getattr(self.coroutine, "cr_frame", None) is not None and self.coroutine.cr_frame.f_lasti < 0:  # type: ignore[attr-defined]  # as inspect does
            self.coroutine.close()  # it has not begun: nothing of it runs
            return
        outer = _SHUT.set(self)
        try:
            for _ in range(_CLOSE_TRIES):
                self.coroutine.throw(BranchClosed())
            logger.error("a body awaits in its `finally` for ever; it is left to the garbage collector")
        except (BranchClosed, StopIteration):
            pass  # it has ended
        except BaseException as error:  # a `finally` of the body may raise anything, and the body is over
            logger.debug("closing a body raised %r", error)
        finally:
            _SHUT.reset(outer)


class Branches:
    """All branches of one body."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._alive: dict[Branch, None] = {}
        self._failed: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._is_closed = False
        self.thread: BodyThread | None = None
        """In which the body runs when it is a `def` function."""
        self.has_branched = False
        """True once the body created a task: until then it stands still whenever the engine runs."""

    def start(self, body: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin the body in a task of its own, its root branch."""
        variables = copy_context()
        variables.run(BODY.set, self)
        return self._begin(body, (), variables)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], variables: Variables | None) -> asyncio.Task[Any]:
        """Make the task of a child branch; called by the task factory."""
        if not asyncio.iscoroutine(coroutine):
            raise TypeError(f"a coroutine was expected, got {coroutine!r}")
        _refuse_as_completed(coroutine)
        variables = copy_context() if variables is None else variables
        if variables.get(BODY) is not self:
            variables = variables.copy()
            variables.run(BODY.set, self)
        parent = current_branch() or next(iter(self._alive), None)
        index = 0
        if parent is not None:
            index = parent.children
            parent.children += 1
        self.has_branched = True
        task = self._begin(coroutine, (*(parent.path if parent else ()), index), variables)
        if self._is_closed:  # by a `finally`: it never begins
            self._end(next(reversed(self._alive)))
        return task

    def _begin(self, coroutine: Coroutine[Any, Any, Any], path: tuple[int, ...], variables: Variables) -> asyncio.Task[Any]:
        branch = Branch(self, coroutine, path, variables)
        branch.task = task = asyncio.Task(branch, loop=self._loop, context=variables)
        self._alive[branch] = None
        task.add_done_callback(lambda task: self._ended(branch, task), context=NO_BODY)
        return task

    def _ended(self, branch: Branch, task: asyncio.Task[Any]) -> None:
        self._alive.pop(branch, None)
        branch.task = None  # a task, its error's traceback and the branch in it would keep each other alive
        if getattr(task, "_exception", None) is not None:  # `exception()` would count as somebody having looked at it
            self._failed.add(task)

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """The tasks that have not ended."""
        return [branch.task for branch in self._alive if branch.task is not None]

    def close(self) -> None:
        """Close every branch, the youngest first. Must be called from outside of the body.

        Errors that the body would still have looked at are looked at here, or asyncio would report them as forgotten.
        """
        self._is_closed = True
        for failed in self._failed:
            failed.exception()
        for branch in reversed(list(self._alive)):
            branch.shut()
        for branch in list(self._alive):  # with those that a `finally` made meanwhile
            for future in _watched(branch):
                future.add_done_callback(_look_at, context=NO_BODY)
            self._end(branch)

    def interrupt(self) -> None:
        """Cancel the branches that await something that is not durable; what the others await is the driver's to end."""
        for branch in list(self._alive):
            if branch.task is not None and foreign_place(branch.coroutine, branch.waiting, _is_branch) is not None:
                branch.task.cancel()

    @staticmethod
    def _end(branch: Branch) -> None:
        if not branch.is_closed:
            branch.is_closed = True
            branch.coroutine.close()
        if branch.task is not None:
            branch.task.cancel()

    def foreign_await(self, timed: Collection[Branches | None] | None = None) -> str | None:
        """Return where a branch awaits something that is not durable, or None when none does. Costs a walk over the stacks.

        Who asks for many bodies passes what `bodies_with_timers` has just returned, or each walks over all timers of the loop.
        """
        for branch in self._alive:
            place = foreign_place(branch.coroutine, branch.waiting, _is_branch)
            if place is not None:
                return place
        if self in (bodies_with_timers(self._loop) if timed is None else timed):
            return "a timer of asyncio's own (asyncio.timeout or wait_for around a durable call): use ctx.timeout"
        return None


def bodies_with_timers(loop: asyncio.AbstractEventLoop) -> set[Branches | None]:
    """Return the bodies that have a timer of asyncio's own; None is among them for timers of others."""
    return {handle._context.get(BODY) for handle in getattr(loop, "_scheduled", ()) if not handle.cancelled()}


def _exit_refused(error: BaseException) -> UsageError:
    """asyncio lets these two out of the loop, where they would end the worker and every run beside this one."""
    return UsageError(f"the body raised {type(error).__name__}, which is for ending a process; raise FinalError to end a run")


def current_branch() -> Branch | None:
    """Return the branch whose code is running, or None outside of a body."""
    shut = _SHUT.get()
    if shut is not None:
        return shut
    task = asyncio.current_task()
    coroutine = task.get_coro() if task is not None else None
    return coroutine if isinstance(coroutine, Branch) else None


def _is_branch(task: asyncio.Task[Any]) -> bool:
    return isinstance(task.get_coro(), Branch)


def detached(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Make a task of the engine's own, which belongs to no body and no step, whoever makes the engine begin it."""
    return asyncio.Task(work, context=NO_BODY.copy())  # not through the factory, which would make it a branch


class TaskFactory:
    """The loop's task factory while a worker runs on it: tasks created inside a body become branches."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._previous = loop.get_task_factory()

    def install(self) -> None:
        self._loop.set_task_factory(self)

    def uninstall(self) -> None:
        if self._loop.get_task_factory() is self:
            self._loop.set_task_factory(self._previous)

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        variables = options.get("context")
        branches = variables.get(BODY) if variables is not None else None
        branches = branches or BODY.get()
        if branches is not None:
            task = branches.spawn(coro, variables)
            if options.get("name") is not None:
                task.set_name(options["name"])
            return task
        if self._previous is not None:
            return self._previous(loop, coro, **options)
        return asyncio.Task(coro, loop=loop, **options)


def _refuse_as_completed(coroutine: Coroutine[Any, Any, Any]) -> None:
    """`as_completed` makes tasks of coroutines in the order of a set, another one in each process."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(7):
        if frame is None:
            return
        if frame.f_code.co_name in ("as_completed", "_AsCompletedIterator") and frame.f_code.co_filename == asyncio.tasks.__file__:
            coroutine.close()
            raise UsageError("as_completed takes coroutines in an order of its own: give it tasks, made with asyncio.create_task(...) one by one")
        frame = frame.f_back


def _watched(branch: Branch) -> Iterator[asyncio.Future[Any]]:
    """Yield the futures that the end of a branch, or of what it awaits, may set an error on: those of gather and shield."""
    if isinstance(branch.waiting, asyncio.Future):
        yield branch.waiting
    for callback in callbacks_of(branch.task):
        yield from futures_in(callback)


def _look_at(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


_SHUT: ContextVar[Branch | None] = ContextVar("outlast_shut", default=None)
"""The branch that is being closed, while its `finally` blocks run."""
