"""The command line: one file per command, which parses, calls a port and prints.

A command's file is loaded when the command is called, so that `outlast --help` answers at once; nothing here or there
knows a database.
"""

from importlib import import_module

import click

COMMANDS = {
    "attention": "List what waits for a person.",
    "cancel": "Ask for a run to end as canceled.",
    "decide": "Answer a question that a run has asked.",
    "demo": "See a folder copied by workers that are killed and frozen.",
    "discard": "Put a failed or dead run aside for good.",
    "doctor": "Look for what is wrong with the database or the fleet.",
    "enqueue": "Accept a run.",
    "migrate": "Create or upgrade the tables.",
    "pause": "Let no worker claim from a queue.",
    "prune": "Delete what has been over for long.",
    "resume": "Give a failed run the result that its step could not give.",
    "retry": "Let a failed, dead or canceled run go on.",
    "runs": "List runs, newest first.",
    "show": "Show a run and its history.",
    "signal": "Send a signal to the runs that wait for it.",
    "stranded": "List what no worker executes, and why.",
    "unpause": "Let workers claim from a queue again.",
    "worker": "Execute runs of an application's tasks.",
    "workers": "List workers.",
}
"""Each command and what it does; it is the function of this name in the file of this name."""


class Commands(click.Group):
    """The commands by name, each loaded when it is called for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"{__name__}.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="outlast", message="%(version)s")
def main() -> None:
    """Durable tasks that outlast the process that runs them.

    The database is --database or OUTLAST_DATABASE_URL, by default the file outlast.db in this folder. The exit code
    is 0 when it was done, 1 when what was asked about failed, 2 when the command was used wrongly.
    """
