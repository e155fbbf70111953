"""`outlast stranded`: runs that would go on, and that no worker executes."""

import click

from outlast.inspector import LaneView, StrandedView

from .application import DONE, Application, Reach, app_option, database_option, execute, json_option
from .output import instant_text, print_json, print_line, print_table


@click.command()
@database_option
@app_option
@json_option
@click.option("--all", "is_all", is_flag=True, help="Every queue, task and version in which something goes on, with how much.")
def stranded(database: str | None, app: str | None, is_json: bool, is_all: bool) -> None:
    """List what would go on if a worker had it, and why none has. With --all, what each version still has to do."""

    async def act(engine: Application) -> int:
        if is_all:
            lanes = await engine.inspector.list_lanes()
            print_json({"lanes": lanes}) if is_json else _print_lanes(lanes)
        else:
            found = await engine.inspector.list_stranded()
            print_json({"stranded": found}) if is_json else _print_stranded(found)
        return DONE

    execute(Reach(database, app), act)


def _print_stranded(found: tuple[StrandedView, ...]) -> None:
    if not found:
        print_line("nothing is stranded")
        return
    print_table(("QUEUE", "TASK", "RUNS", "WHY"), [(one.queue, f"{one.kind} v{one.version}", str(one.runs), one.reason) for one in found])


def _print_lanes(lanes: tuple[LaneView, ...]) -> None:
    rows = [(lane.queue, f"{lane.kind} v{lane.version}", str(lane.pending), str(lane.running), str(lane.waiting), _state(lane)) for lane in lanes]
    print_table(("QUEUE", "TASK", "PENDING", "RUNNING", "WAITING", "WORKERS"), rows)


def _state(lane: LaneView) -> str:
    served = "yes" if lane.is_served else "none"
    return served if lane.paused_at is None else f"{served}; paused since {instant_text(lane.paused_at)}"
