"""An error as data: what is stored, shown and compared when the class that was raised is not at hand.

Reading one never imports anything, and making one never fails, whatever the exception does when it is looked at.
"""

import json
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from outlast.limits import (
    ERROR_BYTES_MAX,
    ERROR_CAUSES_MAX,
    ERROR_MEMBERS_MAX,
    ERROR_MESSAGE_CHARACTERS_MAX,
    ERROR_NAME_CHARACTERS_MAX,
    ERROR_TRACEBACK_CHARACTERS_MAX,
)

ErrorType = type[BaseException]
FINAL_ERROR = "outlast.errors.FinalError"  # by name, because the errors stand on this file


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known of an exception."""

    type: str
    """`module.qualname` of its class."""
    message: str
    bases: tuple[str, ...] = ()
    """The names of the class's ancestors that are exceptions, nearest first, without `BaseException` and `object`."""
    traceback: str = ""
    cause: "Failure | None" = None
    members: tuple["Failure", ...] = field(default=())
    """What an exception group holds."""
    is_final: bool = False
    """No retry helps: it was raised as a `FinalError`, or the policy of whoever raised it named its type."""

    def is_a(self, error: ErrorType) -> bool:
        """Tell whether the recorded error was of this class or of one below it, by recorded names only."""
        return self.is_named(type_name(error))

    def is_named(self, name: str) -> bool:
        return name == self.type or name in self.bases

    def __str__(self) -> str:
        return f"{self.type.removeprefix('builtins.')}: {self.message}" if self.message else self.type.removeprefix("builtins.")


def type_name(cls: type) -> str:
    """Return `module.qualname`, whatever the class says that these are, as text that every database takes."""
    try:
        return storable_text(f"{_own(type, '__module__', cls)}.{_own(type, '__qualname__', cls)}"[:ERROR_NAME_CHARACTERS_MAX], ERROR_NAME_CHARACTERS_MAX)
    except BaseException:  # a class may hide its module behind anything that raises
        return "unknown.unknown"


def capture(error: BaseException, *, is_final: bool = False) -> Failure:
    """Return `error` as data, under `ERROR_BYTES_MAX` bytes as JSON, however hostile its methods are."""
    return _Capture().failure(error, is_final, ERROR_CAUSES_MAX)


class _Capture:
    """One capture: what has been seen, and how many errors and bytes may still be taken."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._errors_left = ERROR_MEMBERS_MAX
        self._bytes_left = ERROR_BYTES_MAX - ERROR_MEMBERS_MAX * 160  # what braces and field names take

    def failure(self, error: BaseException, is_final: bool, depth_left: int) -> Failure:
        self._seen.add(id(error))
        self._errors_left -= 1
        name = self._fitting(type_name(type(error)))
        bases = self._bases(type(error))
        message = self._fitting(_message(error), ERROR_MESSAGE_CHARACTERS_MAX)
        trace = self._fitting(_traceback(error), ERROR_TRACEBACK_CHARACTERS_MAX)
        members = tuple(self.failure(member, False, depth_left - 1) for member in self._unseen(_members(error), depth_left))
        causes = [self.failure(cause, False, depth_left - 1) for cause in self._unseen(_causes(error), depth_left)]
        is_final = is_final or FINAL_ERROR in (name, *bases)
        return Failure(name, message, bases, trace, causes[0] if causes else None, members, is_final)

    def _unseen(self, errors: Iterable[BaseException], depth_left: int) -> Iterator[BaseException]:
        for error in errors:
            if depth_left > 1 and self._errors_left > 0 and id(error) not in self._seen:
                yield error

    def _bases(self, cls: type) -> tuple[str, ...]:
        names = [type_name(base) for base in _own(type, "__mro__", cls)[1:] if issubclass(base, BaseException) and base is not BaseException]
        return tuple(self._fitting(name) for name in names[:ERROR_MEMBERS_MAX])

    def _fitting(self, text: str, limit: int | None = None) -> str:
        """Return `text` cleaned and no longer than half of the bytes that are left, so that something is left for what follows."""
        limit = len(text) if limit is None else limit
        cleaned = storable_text(text, limit)
        while (size := len(json.dumps(cleaned, ensure_ascii=False).encode())) > max(self._bytes_left // 2, 2):
            limit = min(limit, len(cleaned)) // 2
            cleaned = storable_text(text, limit)
        self._bytes_left -= size
        return cleaned


def _causes(error: BaseException) -> list[BaseException]:
    """Return the cause, or what the error was raised in, past whatever a class puts in front of its own fields."""
    cause = _own(BaseException, "__cause__", error)
    if cause is None and not _own(BaseException, "__suppress_context__", error):
        cause = _own(BaseException, "__context__", error)
    return [] if cause is None else [cause]


def _members(error: BaseException) -> tuple[BaseException, ...]:
    members: tuple[BaseException, ...] = _own(BaseExceptionGroup, "exceptions", error) if issubclass(type(error), BaseExceptionGroup) else ()
    return members


def _own(owner: type, name: str, holder: Any) -> Any:
    """Return what Python itself keeps under `name`, past any property of the same name in a class below `owner`."""
    return owner.__dict__[name].__get__(holder)


def _message(error: BaseException) -> str:
    try:
        return str.__str__(str(error))  # the outer one makes a plain string of whatever subclass came
    except BaseException:  # whatever a hostile __str__ raises, the failure itself must be kept
        return "(the error's own text could not be made)"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_tb(_own(BaseException, "__traceback__", error)))
    except BaseException:  # as above: a source line that cannot be read must not hide the error
        return ""


def storable_text(text: str, limit: int) -> str:
    """Return `text` as every database takes it: no NUL, no lone surrogates, the middle dropped where it is too long."""
    if len(text) > limit:
        half = limit // 2
        note = f"\n... {len(text) - 2 * half} characters left out ...\n" if limit > 200 else "..."
        text = f"{text[:half]}{note}{text[len(text) - half :]}" if limit > 10 else ""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
