"""`outlast decide`: answer a question that a run has asked."""

import click

from outlast.decision import NO_RESULT

from .application import DONE, Application, Reach, actor_option, app_option, database_option, execute, json_option, parsed_json, user_name
from .output import print_json, print_line


@click.command()
@click.argument("decision_id", metavar="ID")
@click.argument("option")
@database_option
@app_option
@json_option
@click.option("--result", metavar="JSON", help="What it returned, for an option that needs a result.")
@click.option("--note", metavar="TEXT", default="", help="Why; kept with the answer.")
@actor_option
def decide(decision_id: str, option: str, database: str | None, app: str | None, is_json: bool, result: str | None, note: str, actor: str | None) -> None:
    """Answer the question ID with one of its options, once; its run goes on. `outlast attention` lists the questions.

    With --app the result is checked against the effect's type at once, else by the worker, which asks anew if it does not fit.
    """

    async def act(engine: Application) -> int:
        value = NO_RESULT if result is None else parsed_json(result, "--result")
        decision = await engine.operator.decide(decision_id, option, result=value, note=note, actor=actor or user_name())
        print_json(decision) if is_json else print_line(f"answered: {decision.answer} by {decision.answered_by}")
        return DONE

    execute(Reach(database, app), act)
