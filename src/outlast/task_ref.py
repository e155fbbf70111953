"""TaskRef: a task by name, for those who enqueue it without importing its body."""

from __future__ import annotations

from typing import Any, Generic, overload

from typing_extensions import TypeVar

from outlast.errors import UsageError
from outlast.limits import NAME_CHARACTERS_MAX
from outlast.payload import Codec, codec_for

I = TypeVar("I", default=Any)
O = TypeVar("O", default=Any)
INT4_MAX = 2**31 - 1


class TaskRef(Generic[I, O]):
    """The name, version and types of a task."""

    def __init__(self, name: str, version: int, input: Any, output: Any) -> None:
        if not _is_name(name):
            raise UsageError(f"task name {name!r}: write 1 to {NAME_CHARACTERS_MAX} printable characters, without spaces at the ends")
        if not _is_version(version):
            raise UsageError(f"version of {name} is {version!r}: write a whole number from 1")
        self.name = name
        self.version = version
        self.input: Codec = codec_for(type(None) if input is None else input)
        self.output: Codec = codec_for(type(None) if output is None else output)

    def __repr__(self) -> str:
        return f"<task {self.name} v{self.version}>"


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= NAME_CHARACTERS_MAX and name.isprintable() and name == name.strip()


def _is_version(version: Any) -> bool:
    return isinstance(version, int) and not isinstance(version, bool) and 1 <= version <= INT4_MAX


@overload
def task_ref(name: str, version: int = 1, input: None = None, output: None = None) -> TaskRef[None, None]: ...
@overload
def task_ref(name: str, version: int = 1, *, input: None = None, output: type[O]) -> TaskRef[None, O]: ...
@overload
def task_ref(name: str, version: int, input: None, output: type[O]) -> TaskRef[None, O]: ...
@overload
def task_ref(name: str, version: int = 1, *, input: type[I], output: None = None) -> TaskRef[I, None]: ...
@overload
def task_ref(name: str, version: int, input: type[I], output: None = None) -> TaskRef[I, None]: ...
@overload
def task_ref(name: str, version: int = 1, *, input: type[I], output: type[O]) -> TaskRef[I, O]: ...
@overload
def task_ref(name: str, version: int, input: type[I], output: type[O]) -> TaskRef[I, O]: ...
def task_ref(name: str, version: int = 1, input: Any = None, output: Any = None) -> TaskRef[Any, Any]:
    """Return a reference to a task whose code is elsewhere. `None` as input or output means that there is none.

    The engine accepts it from anywhere: whether a worker has such a task shows when the run is claimed, and until then
    in `RunView.why`.
    """
    return TaskRef(name, version, input, output)
