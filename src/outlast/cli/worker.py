"""`outlast worker`: execute runs, in child processes under a supervisor."""

import asyncio
from collections.abc import Callable
from typing import Any

import click

from outlast.errors import UsageError
from outlast.limits import CONCURRENCY_MAX

from .application import duration_option, json_option, leave, load_application
from .output import print_json, print_line

PROCESSES_MAX = 256


@click.command()
@click.option("--app", metavar="MODULE:ENGINE", required=True, help="The application's engine; the current folder is on its path.")
@click.option("--processes", type=click.IntRange(1, PROCESSES_MAX), default=1, show_default=True)
@click.option("--concurrency", type=click.IntRange(1, CONCURRENCY_MAX), default=50, show_default=True, help="Bodies at once in each process.")
@click.option("--queues", metavar="A,B", default="default", show_default=True)
@click.option("--stop-timeout", metavar="DURATION", default="30s", show_default=True, help="How long bodies may go on once it is told to stop.")
@json_option
@click.option("--child", metavar="FD:FD", hidden=True, help="Be one of the processes; for the supervisor only.")
def worker(app: str, processes: int, concurrency: int, queues: str, stop_timeout: str, is_json: bool, child: str | None) -> None:
    """Execute runs of an application's tasks until SIGTERM or SIGINT; a second signal ends it at once.

    A process that dies is started again, and one that is silent past its lease is killed. The exit code is 1 if
    bodies did not end in time; their runs go on elsewhere when their lease is over.
    """

    def act() -> int:
        names = tuple(name.strip() for name in queues.split(",") if name.strip())
        if not names:
            raise UsageError(f"--queues is {queues!r}: write names with commas between them")
        seconds = duration_option(stop_timeout, "--stop-timeout") or 0.0
        if child is not None:
            return _be_child(app, child, names, concurrency, seconds)
        return _supervise(app, processes, names, concurrency, seconds, print_json_event if is_json else print_event)

    leave(act)


def _be_child(app: str, descriptors: str, queues: tuple[str, ...], concurrency: int, stop_timeout: float) -> int:
    from .worker_child import WorkerChild, set_up_logging

    lifeline, messages = (int(number) for number in descriptors.split(":"))
    engine = load_application(app)
    set_up_logging()
    return asyncio.run(WorkerChild(engine, lifeline, messages, stop_timeout=stop_timeout).run(queues, concurrency))


def _supervise(app: str, processes: int, queues: tuple[str, ...], concurrency: int, stop_timeout: float, report: Callable[..., None]) -> int:
    from .supervisor import Supervisor
    from .worker_process import WorkerProcess, worker_command

    command = worker_command(app, queues=queues, concurrency=concurrency, stop_timeout=stop_timeout)
    return Supervisor(lambda: WorkerProcess(command), processes, stop_timeout=stop_timeout, report=report).run()


def print_event(event: str, /, **facts: Any) -> None:
    """Print what the supervisor did for people."""
    told = ", ".join(f"{name} {value}" for name, value in facts.items())
    print_line(f"{event}: {told}".replace("_", " "))


def print_json_event(event: str, /, **facts: Any) -> None:
    """Print what the supervisor did as a line of JSON."""
    print_json({"event": event, **facts})
