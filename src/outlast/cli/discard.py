"""`outlast discard`: put a failed or dead run aside for good."""

import click

from .application import DONE, Application, Reach, actor_option, app_option, database_option, execute, json_option, reason_option, user_name
from .output import print_json, print_line


@click.command()
@click.argument("run_id", metavar="RUN")
@database_option
@app_option
@json_option
@actor_option
@reason_option
def discard(run_id: str, database: str | None, app: str | None, is_json: bool, actor: str | None, reason: str) -> None:
    """End a failed or dead run as canceled: somebody has looked at it, and nothing more is to come. It keeps its error."""

    async def act(engine: Application) -> int:
        view = await engine.operator.discard(run_id, actor=actor or user_name(), reason=reason)
        print_json(view) if is_json else print_line(view.why)
        return DONE

    execute(Reach(database, app), act)
