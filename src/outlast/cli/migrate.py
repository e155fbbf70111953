"""`outlast migrate`: create or upgrade the tables, or print how."""

import click

from .application import DONE, Application, Reach, app_option, database_option, execute, json_option
from .output import print_json, print_line


@click.command()
@database_option
@app_option
@json_option
@click.option("--print", "is_script", is_flag=True, help="Print the SQL for the application's own migration tool, and change nothing.")
def migrate(database: str | None, app: str | None, is_json: bool, is_script: bool) -> None:
    """Create the tables, or upgrade them to this version. Workers of the version before go on meanwhile."""
    execute(Reach(database, app), lambda engine: _migrate(engine, is_json, is_script))


async def _migrate(engine: Application, is_json: bool, is_script: bool) -> int:
    if is_script:
        script = engine.migration_script()
        print_json({"script": script}) if is_json else click.echo(script)
        return DONE
    applied = await engine.migrate()
    if is_json:
        print_json({"applied": applied})
        return DONE
    for name in applied:
        print_line(f"applied {name}")
    if not applied:
        print_line("nothing to do: the tables are up to date")
    return DONE
