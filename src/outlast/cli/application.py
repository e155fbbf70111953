"""Application: from the options --database and --app to an engine, and from what it raises to a message and an exit code."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from types import TracebackType
from typing import Any, NoReturn, Protocol

import click
from typing_extensions import Unpack

from outlast.duration import Duration, as_duration
from outlast.errors import OutlastError, UsageError
from outlast.events import Events
from outlast.finding import Finding
from outlast.inspector import Inspector
from outlast.operator import Operator
from outlast.run import CancelOutcome, Run, RunView, SignalOptions
from outlast.signal import SignalReceipt
from outlast.task_ref import TaskRef

from .output import escaped

DONE, FAILED, WRONG_USE = 0, 1, 2


class Application(Protocol):
    """What the commands ask of an engine: to accept, cancel and read runs, the two ports for people, the schema, and a worker's whole life."""

    @property
    def inspector(self) -> Inspector: ...
    @property
    def operator(self) -> Operator: ...
    @property
    def events(self) -> Events: ...
    @property
    def tasks(self) -> Sequence[TaskRef[Any, Any]]: ...
    @property
    def lease(self) -> timedelta: ...
    @property
    def enqueue(self) -> Callable[..., Awaitable[Run[Any]]]: ...
    async def signal(self, topic: str, payload: Any = None, /, **options: Unpack[SignalOptions]) -> SignalReceipt: ...
    async def cancel(self, run_id: str, /, *, reason: str) -> CancelOutcome: ...
    async def get(self, run_id: str, /) -> RunView: ...
    async def migrate(self) -> list[str]: ...
    async def examine(self) -> Sequence[Finding]: ...
    def migration_script(self) -> str: ...
    async def run(self, *, queues: Sequence[str] = ..., concurrency: int = ..., stop_timeout: Duration = ...) -> Sequence[str]: ...
    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> Any: ...


@dataclass(frozen=True)
class Reach:
    """Where a command finds its engine."""

    database: str | None
    app: str | None

    def open(self) -> Application:
        """Return the engine, which has opened nothing yet. Raises `UsageError` with what to write instead."""
        if self.app is None:
            from outlast.connect import connect

            engine: Application = connect(self.database or "sqlite:///outlast.db")
            return engine
        return load_application(self.app)


app_option = click.option("--app", metavar="MODULE:ENGINE", help="The application's engine instead of --database; the current folder is on its path.")
database_option = click.option(
    "--database", metavar="URL", envvar="OUTLAST_DATABASE_URL", help="postgresql://... or sqlite:///file  [default: sqlite:///outlast.db]"
)
actor_option = click.option("--actor", metavar="NAME", help="Who; kept with what is done.  [default: your user name]")
reason_option = click.option("--reason", metavar="TEXT", default="asked for on the command line", show_default=True, help="Why; kept with what is done.")
json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON for programs.")


def load_application(reference: str) -> Application:
    """Import `module:engine`, the current folder first on the path. `engine` may also be a function that returns one."""
    module_name, separator, attribute = reference.partition(":")
    if not (module_name and separator and attribute):
        raise UsageError(f"--app is {reference!r}: write it as module:engine, for example myapp.tasks:engine")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: Any = _imported(module_name, reference)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UsageError(f"--app is {reference!r}, and {module_name} has no {attribute}: name the variable that holds what connect() returned")
        found = getattr(found, part)
    if callable(found):
        found = found()
    if not (hasattr(found, "enqueue") and hasattr(found, "inspector")):
        raise UsageError(f"--app is {reference!r}, which is a {type(found).__name__}: name the variable that holds what connect() returned")
    engine: Application = found
    return engine


def _imported(module_name: str, reference: str) -> Any:
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and what it imports is not: its own traceback says where
        raise UsageError(f"--app is {reference!r}, and there is no module {error.name}: run the command in the folder that holds it") from None


def execute(reach: Reach, act: Callable[[Application], Awaitable[int]]) -> NoReturn:
    """Open the engine, let `act` use it, and leave with the exit code that it returns or that its error means."""

    async def within() -> int:
        async with reach.open() as engine:
            return await act(engine)

    leave(lambda: asyncio.run(within()))


def leave(act: Callable[[], int]) -> NoReturn:
    """Leave with what `act` returns; an error of this library becomes its message and 1, or 2 where the call was wrong."""
    try:
        code = act()
    except OutlastError as error:
        print_error(str(error))
        sys.exit(WRONG_USE if isinstance(error, UsageError) else FAILED)
    sys.exit(code)


def print_error(message: str) -> None:
    """Print a message on the error stream, line by line, each escaped."""
    for index, line in enumerate(message.splitlines()):
        click.echo(f"{'' if index else 'Error: '}{escaped(line)}", err=True)


def duration_option(value: str | None, name: str) -> float | None:
    """Return an option's duration in seconds. Raises `UsageError` that names the option."""
    if value is None:
        return None
    try:
        return as_duration(float(value) if _is_number(value) else value, name).total_seconds()
    except ValueError as error:
        raise UsageError(str(error)) from None


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def parsed_json(text: str, name: str) -> Any:
    """Return the value of an option or argument that is JSON. Raises `UsageError` that names it."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{name} is no JSON ({error}): write a string with its quotes, for example '\"text\"'") from None


def user_name() -> str:
    """Return who acts, for the record of the action."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user often has no name
        return f"user {os.getuid()}"
