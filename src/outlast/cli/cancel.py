"""`outlast cancel`: ask for a run to end as canceled."""

import click

from outlast.run import CancelOutcome, RunStatus

from .application import DONE, FAILED, Application, Reach, app_option, database_option, execute, json_option, user_name
from .output import print_json, print_line

MEANINGS = {
    CancelOutcome.REQUESTED: "requested: it will not succeed, and who executes it is told",
    CancelOutcome.CANCELED: "canceled: it had never run, and is over",
    CancelOutcome.ALREADY_OVER: "already over",
}


@click.command()
@click.argument("run_id", metavar="RUN")
@database_option
@app_option
@json_option
@click.option("--reason", metavar="TEXT", help="Why; kept with the run.  [default: canceled by your user name]")
def cancel(run_id: str, database: str | None, app: str | None, is_json: bool, reason: str | None) -> None:
    """Ask for a run to end as canceled. The exit code is 1 for a run that had ended otherwise before."""

    async def act(engine: Application) -> int:
        outcome = await engine.cancel(run_id, reason=reason or f"canceled by {user_name()}")
        view = await engine.get(run_id)
        if is_json:
            print_json({"outcome": outcome, "status": view.status})
        else:
            print_line(MEANINGS[outcome] if outcome is not CancelOutcome.ALREADY_OVER else f"{MEANINGS[outcome]}: {view.status}")
        return FAILED if outcome is CancelOutcome.ALREADY_OVER and view.status is not RunStatus.CANCELED else DONE

    execute(Reach(database, app), act)
