"""Schema: does it fit this code? Pure."""

from dataclasses import dataclass

from outlast.finding import Check, Finding, ok, problem


@dataclass(frozen=True, slots=True)
class SchemaFit:
    """The schema's row, and this code."""

    version: int | None
    """None when there is no schema."""
    oldest_code: int
    """The oldest code that works with it."""
    code_version: int


def judge(found: SchemaFit) -> list[Finding]:
    if found.version is None:
        return [problem(Check.SCHEMA, "the tables of outlast are not there", 'run `outlast migrate`, or start a process with connect(migrate="create")')]
    if found.version < found.code_version:
        return [problem(Check.SCHEMA, f"the schema has version {found.version}, and this code needs {found.code_version}", "run `outlast migrate`")]
    if found.oldest_code > found.code_version:
        text = f"the schema has version {found.version} and needs code of version {found.oldest_code}; this is {found.code_version}"
        return [problem(Check.SCHEMA, text, "deploy a newer outlast")]
    newer = f", which this code of version {found.code_version} can still use" if found.version > found.code_version else ""
    return [ok(Check.SCHEMA, f"version {found.version}{newer}")]
