"""`outlast pause`: let no worker claim from a queue."""

import click

from outlast.operator import QueueView

from .application import DONE, Application, Reach, actor_option, app_option, database_option, execute, json_option, reason_option, user_name
from .output import instant_text, print_json, print_line


@click.command()
@click.argument("queue", metavar="QUEUE")
@database_option
@app_option
@json_option
@actor_option
@reason_option
def pause(queue: str, database: str | None, app: str | None, is_json: bool, actor: str | None, reason: str) -> None:
    """Let no worker claim from a queue. What runs goes on, and runs are accepted as before."""

    async def act(engine: Application) -> int:
        view = await engine.operator.pause_queue(queue, actor=actor or user_name(), reason=reason)
        print_json(view) if is_json else print_line(_told(view))
        return DONE

    execute(Reach(database, app), act)


def _told(view: QueueView) -> str:
    said = f"queue {view.name} is paused" if view.has_changed else f"queue {view.name} has been paused since {instant_text(view.paused_at)}"
    return said if view.lanes else f"{said}; nothing was ever enqueued to it: is that its name?"
