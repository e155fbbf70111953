"""`outlast resume`: give a failed run the result that its step could not give."""

import click

from .application import DONE, Application, Reach, actor_option, app_option, database_option, execute, json_option, parsed_json, user_name
from .output import print_json, print_line


@click.command()
@click.argument("run_id", metavar="RUN")
@database_option
@app_option
@json_option
@click.option("--result", metavar="JSON", required=True, help="What the step or effect that failed would have returned.")
@actor_option
@click.option("--reason", metavar="TEXT", required=True, help="Why; kept with what is done.")
def resume(run_id: str, database: str | None, app: str | None, is_json: bool, result: str, actor: str | None, reason: str) -> None:
    """Let a failed run go on with a result in place of the error that failed it. An effect counts as done."""

    async def act(engine: Application) -> int:
        view = await engine.operator.resume(run_id, parsed_json(result, "--result"), actor=actor or user_name(), reason=reason)
        print_json(view) if is_json else print_line(f"{view.status}: {view.why}".removesuffix(": "))
        return DONE

    execute(Reach(database, app), act)
