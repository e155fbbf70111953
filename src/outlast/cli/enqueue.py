"""`outlast enqueue`: accept a run, and wait for its end if asked to."""

import json
import sys
from dataclasses import dataclass
from typing import Any

import click

from outlast.errors import RunError, UsageError
from outlast.limits import PRIORITY_MAX, PRIORITY_MIN
from outlast.run import Run
from outlast.task_ref import TaskRef, task_ref

from .application import DONE, FAILED, Application, Reach, app_option, database_option, duration_option, execute, json_option, print_error
from .output import print_json, print_line


@dataclass(frozen=True)
class Order:
    """What was asked for."""

    kind: str
    version: int
    input: str | None
    key: str | None
    delay: float | None
    queue: str
    priority: int
    tags: tuple[str, ...]
    wait: float | None


@click.command()
@click.argument("kind")
@click.argument("input", metavar="[INPUT-JSON]", required=False)
@database_option
@app_option
@json_option
@click.option("--version", type=click.IntRange(1), default=1, show_default=True, help="The task's version.")
@click.option("--key", metavar="TEXT", help="Idempotency key: the same key, the same run.")
@click.option("--delay", metavar="DURATION", help="Not before this has passed, for example 5m.")
@click.option("--queue", metavar="NAME", default="default", show_default=True)
@click.option("--priority", type=click.IntRange(PRIORITY_MIN, PRIORITY_MAX), default=0, show_default=True, help="Smaller first.")
@click.option("--tag", "tags", metavar="TEXT", multiple=True, help="For finding it again; may be given several times.")
@click.option("--wait", metavar="DURATION", help="Wait this long for its end and print what it returned; exit code 1 if it does not succeed.")
def enqueue(database: str | None, app: str | None, is_json: bool, delay: str | None, wait: str | None, input: str | None, **options: Any) -> None:
    """Accept a run of the task KIND with this input; "-" reads the input from standard input."""

    async def act(engine: Application) -> int:
        text = sys.stdin.read() if input == "-" else input
        order = Order(input=text, delay=duration_option(delay, "--delay"), wait=duration_option(wait, "--wait"), **options)
        return await _enqueue(engine, order, is_json)

    execute(Reach(database, app), act)


async def _enqueue(engine: Application, order: Order, is_json: bool) -> int:
    task, value = _task_and_input(engine, order)
    inputs = () if order.input is None else (value,)
    run = await engine.enqueue(task, *inputs, idempotency_key=order.key, delay=order.delay, queue=order.queue, priority=order.priority, tags=order.tags)
    if order.wait is not None:
        return await _wait(run, order.wait, is_json)
    if is_json:
        print_json({"id": run.id, "created": run.created})
    else:
        print_line(f"{run.id}{'' if run.created else '  (the key was there: this is its run)'}")
    return DONE


def _task_and_input(engine: Application, order: Order) -> tuple[TaskRef[Any, Any], Any]:
    """Return the application's own task, which checks the input's type, or a reference to a task elsewhere that takes plain JSON."""
    known = {(each.name, each.version): each for each in engine.tasks}
    task = known.get((order.kind, order.version))
    if task is not None:
        return task, None if order.input is None else task.input.decode(order.input, "INPUT-JSON")
    if known:
        there = ", ".join(f"{name} v{version}" for name, version in sorted(known))
        raise UsageError(f"the application has no {order.kind} v{order.version}, but {there}; leave --app out to enqueue a task from elsewhere")
    if order.input is None:
        return TaskRef(order.kind, order.version, None, Any), None
    return task_ref(order.kind, order.version, Any, Any), _plain_input(order.input)


def _plain_input(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"the input is no JSON ({error}): write a string with its quotes, for example '\"text\"'") from None


async def _wait(run: Run[Any], seconds: float, is_json: bool) -> int:
    error = ""
    try:
        await run.result(timeout=seconds)
    except RunError as ended:
        error = str(ended)
    except TimeoutError:
        error = f"run {run.id} is not over after {seconds:g} s; `outlast show {run.id}` says why"
    view = await run.view()
    output = None if view.output is None else json.loads(view.output)
    if is_json:
        print_json({"id": run.id, "created": run.created, "status": view.status, "output": output, "error": view.error})
    elif error:
        print_error(error)
    else:
        print_line(json.dumps(output, ensure_ascii=False))
    return FAILED if error else DONE
