"""What a suspended coroutine awaits, and whether that is durable: for telling a user which await of a body is not.

Looks at frames and at asyncio's own futures from outside. Never changes what it looks at, and never runs a body's code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

from outlast.driver import Handed

IsBranch = Callable[["asyncio.Task[Any]"], bool]


def foreign_place(coroutine: Any, waiting: Any, is_branch: IsBranch) -> str | None:
    """Return where a suspended coroutine awaits something that is not durable; None when it does not, or has ended."""
    frames = _frames(coroutine)
    if not frames or _is_durable(waiting, is_branch) or _is_parent(frames, is_branch):
        return None
    return _place(frames)


def callbacks_of(future: Any) -> Iterator[FunctionType]:
    """Yield the functions that are called when a future is done."""
    for callback, _ in getattr(future, "_callbacks", None) or ():
        if isinstance(callback, FunctionType):
            yield callback


def futures_in(function: FunctionType) -> Iterator[asyncio.Future[Any]]:
    """Yield the futures that a nested function refers to: where gather and shield keep what they complete."""
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:  # an empty cell
            continue
        if isinstance(content, asyncio.Future):
            yield content


def _frames(coroutine: Any) -> list[FrameType]:
    """Return the frames of a suspended coroutine, outermost first."""
    frames = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None) or getattr(coroutine, "ag_frame", None)
        if frame is not None:
            frames.append(frame)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None) or getattr(coroutine, "ag_await", None)
    return frames


def _is_durable(waiting: Any, is_branch: IsBranch) -> bool:
    if isinstance(waiting, Handed):
        return True
    if isinstance(waiting, asyncio.Task):
        return is_branch(waiting)
    parts = getattr(waiting, "_children", None) or list(_shielded(waiting))  # of what gather() returns; of what shield() returns
    return bool(parts) and all(_is_durable(part, is_branch) for part in parts if not part.done())


def _shielded(waiting: Any) -> Iterator[asyncio.Future[Any]]:
    for callback in callbacks_of(waiting):
        if callback.__qualname__ == "shield.<locals>._outer_done_callback":
            yield from (future for future in futures_in(callback) if future is not waiting)


def _is_parent(frames: list[FrameType], is_branch: IsBranch) -> bool:
    """Tell whether asyncio's own code waits here, on a plain future, for branches and nothing else."""
    frame = frames[-1]
    if frame.f_code is _WAIT:
        return all(_is_durable(future, is_branch) for future in frame.f_locals["fs"] if not future.done())
    if frame.f_code is asyncio.Queue.get.__code__ and len(frames) > 1:
        outer = frames[-2].f_code
        return outer.co_name == "_wait_for_one" and outer.co_filename == asyncio.tasks.__file__  # of as_completed
    return frame.f_code in _GROUPS


def _groups() -> frozenset[CodeType]:
    """The code of asyncio's own in which the parent of a group waits for its branches."""
    functions = [asyncio.TaskGroup.__aexit__, getattr(asyncio.TaskGroup, "_aexit", None)]
    return frozenset(function.__code__ for function in functions if function is not None)


_GROUPS = _groups()
_ASYNCIO = asyncio.__file__.removesuffix("__init__.py")
_WAIT: CodeType = asyncio.tasks._wait.__code__  # type: ignore[attr-defined]  # where asyncio.wait waits


def _place(frames: list[FrameType]) -> str:
    own = [frame for frame in frames if not frame.f_code.co_filename.startswith(_ASYNCIO)] or frames
    return f"{own[-1].f_code.co_qualname}, line {own[-1].f_lineno} of {own[-1].f_code.co_filename}"
