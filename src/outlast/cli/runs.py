"""`outlast runs`: a page of runs, newest first."""

import click

from outlast.clock import SystemClock
from outlast.inspector import RunPage
from outlast.limits import PAGE_MAX
from outlast.run import RunStatus

from .application import DONE, Application, Reach, app_option, database_option, execute, json_option
from .output import print_json, print_line, print_table, span_text


@click.command()
@database_option
@app_option
@json_option
@click.option("--status", type=click.Choice([str(status) for status in RunStatus]), help="Only runs in this state.")
@click.option("--kind", metavar="NAME", help="Only runs of this task.")
@click.option("--queue", metavar="NAME", help="Only runs of this queue.")
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=20, show_default=True, help="How many.")
@click.option("--before", metavar="PLACE", help="Where the page begins, as the page before has printed it.")
def runs(database: str | None, app: str | None, is_json: bool, status: str | None, kind: str | None, queue: str | None, limit: int, before: str | None) -> None:
    """List runs, newest first."""
    chosen = None if status is None else RunStatus(status)

    async def act(engine: Application) -> int:
        page = await engine.inspector.list_runs(status=chosen, kind=kind, queue=queue, limit=limit, before=before)
        print_json(page) if is_json else _print_page(page)
        return DONE

    execute(Reach(database, app), act)


def _print_page(page: RunPage) -> None:
    now = SystemClock().now()
    rows = [(run.id, str(run.status), f"{run.kind} v{run.version}", run.queue, span_text(now - run.created_at), run.why) for run in page.runs]
    print_table(("RUN", "STATUS", "TASK", "QUEUE", "AGE", "WHY"), rows)
    if page.next is not None:
        print_line(f"more with --before {page.next}")
