"""`outlast retry`: let a failed, dead or canceled run go on."""

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
def retry(run_id: str, database: str | None, app: str | None, is_json: bool, actor: str | None, reason: str) -> None:
    """Let a failed, dead or canceled run go on. Its finished steps stay, and the one that failed has fresh attempts."""

    async def act(engine: Application) -> int:
        view = await engine.operator.retry(run_id, actor=actor or user_name(), reason=reason)
        print_json(view) if is_json else print_line(f"{view.status}: {view.why}".removesuffix(": "))
        return DONE

    execute(Reach(database, app), act)
