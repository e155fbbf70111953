"""`outlast workers`: who executes runs, and who did."""

import click

from outlast.clock import SystemClock
from outlast.inspector import WorkerView

from .application import DONE, Application, Reach, app_option, database_option, execute, json_option
from .output import print_json, print_table, span_text


@click.command()
@database_option
@app_option
@json_option
@click.option("--alive", "only_alive", is_flag=True, help="Only those that live.")
def workers(database: str | None, app: str | None, is_json: bool, only_alive: bool) -> None:
    """List workers: those that live, and those that ended, with how they ended."""

    async def act(engine: Application) -> int:
        views = await engine.inspector.list_workers(only_alive=only_alive)
        print_json({"workers": views}) if is_json else _print(views)
        return DONE

    execute(Reach(database, app), act)


def _print(views: tuple[WorkerView, ...]) -> None:
    now = SystemClock().now()
    rows = [
        (
            view.name,
            "alive" if view.is_alive else view.end or "ended",
            f"{view.running} of {view.concurrency}",
            span_text((view.ended_at or now) - view.started_at),
            ", ".join(view.queues),
            ", ".join(view.tasks),
        )
        for view in views
    ]
    print_table(("WORKER", "STATUS", "RUNNING", "LIVED", "QUEUES", "TASKS"), rows)
