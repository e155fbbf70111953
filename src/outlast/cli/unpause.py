"""`outlast unpause`: let workers claim from a queue again."""

import click

from .application import DONE, Application, Reach, actor_option, app_option, database_option, execute, json_option, reason_option, user_name
from .output import print_json, print_line


@click.command()
@click.argument("queue", metavar="QUEUE")
@database_option
@app_option
@json_option
@actor_option
@reason_option
def unpause(queue: str, database: str | None, app: str | None, is_json: bool, actor: str | None, reason: str) -> None:
    """Let workers claim from a queue again, and wake them."""

    async def act(engine: Application) -> int:
        view = await engine.operator.unpause_queue(queue, actor=actor or user_name(), reason=reason)
        print_json(view) if is_json else print_line(f"queue {view.name} {'goes on' if view.has_changed else 'was not paused'}")
        return DONE

    execute(Reach(database, app), act)
