"""`outlast prune`: delete what has been over for long."""

import click

from outlast.operator import PruneReport

from .application import DONE, Application, Reach, actor_option, app_option, database_option, duration_option, execute, json_option, reason_option, user_name
from .output import print_json, print_line


@click.command()
@database_option
@app_option
@json_option
@click.option("--older-than", metavar="DURATION", required=True, help="How long a run must have been over, such as 30d.")
@click.option("--keys-older-than", metavar="DURATION", help="Delete keys of pruned runs too, accepted longer ago than this; by default they stay.")
@click.option("--dead-letters", is_flag=True, help="Failed and dead runs too, which else stay until somebody retries or discards them.")
@actor_option
@reason_option
def prune(
    database: str | None,
    app: str | None,
    is_json: bool,
    older_than: str,
    keys_older_than: str | None,
    dead_letters: bool,
    actor: str | None,
    reason: str,
) -> None:
    """Delete runs that were over for long, with their history. A key still answers afterwards, without the result."""

    async def act(engine: Application) -> int:
        runs, keys = duration_option(older_than, "--older-than"), duration_option(keys_older_than, "--keys-older-than")
        assert runs is not None  # the option is required
        report = await engine.operator.prune(runs, keys_older_than=keys, dead_letters=dead_letters, actor=actor or user_name(), reason=reason)
        print_json(report) if is_json else print_line(_told(report))
        return DONE

    execute(Reach(database, app), act)


def _told(report: PruneReport) -> str:
    said = f"{report.runs} {'run' if report.runs == 1 else 'runs'} and {report.keys} {'key' if report.keys == 1 else 'keys'} deleted"
    return said if not report.kept else f"{said}; {report.kept} failed or dead kept: retry or discard them, or prune with --dead-letters"
