"""`outlast doctor`: what is wrong with the database, or with the fleet on it."""

from collections import Counter
from collections.abc import Sequence

import click

from outlast.finding import Finding, Level

from .application import DONE, FAILED, Application, Reach, app_option, database_option, execute, json_option
from .output import print_json, print_line, print_table


@click.command()
@database_option
@app_option
@json_option
def doctor(database: str | None, app: str | None, is_json: bool) -> None:
    """Look for what is wrong: versions, settings, schema, addresses, clocks, files, plans, lanes, growth. It changes nothing.

    With --app the application's own tasks and addresses are looked at too. The exit code is 1 if there is any problem,
    and 0 if there are only warnings.
    """

    async def act(engine: Application) -> int:
        findings = await engine.examine()
        print_json({"findings": list(findings)}) if is_json else _print(findings)
        return FAILED if any(finding.level == Level.PROBLEM for finding in findings) else DONE

    execute(Reach(database, app), act)


def _print(findings: Sequence[Finding]) -> None:
    """A line for each finding; then what is wrong once more, whole, with what to do."""
    print_table(("CHECK", "LEVEL", "FOUND"), [(finding.check, finding.level.replace("_", " "), finding.message) for finding in findings])
    for finding in findings:
        if finding.remedy:
            print_line()
            print_line(f"{finding.level}: {finding.message}")
            print_line(f"  what to do: {finding.remedy}")
    counts = Counter(str(finding.level) for finding in findings)
    print_line()
    print_line(f"{_counted(counts[Level.PROBLEM], 'problem')}, {_counted(counts[Level.WARNING], 'warning')}")


def _counted(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
