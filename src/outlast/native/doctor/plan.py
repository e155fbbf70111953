"""Plan: are the statements of the claim served by their indexes? Plans as the databases print them, read here. Pure."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from outlast.finding import Check, Finding, all_or_ok, problem

_REMEDY = "see which index is missing or invalid (`outlast migrate --print` has them all), make it again, and run ANALYZE"


def judge_postgres(statement: str, plan: str, table: str, index: str) -> list[Finding]:
    """`plan` is what EXPLAIN (FORMAT JSON) answers; every access to `table` has to be an index scan of `index`."""
    nodes = list(_nodes(json.loads(plan)[0]["Plan"]))
    reads = [node for node in nodes if node.get("Relation Name") == table and "Scan" in node["Node Type"]]
    wrong = [_shown(node) for node in reads if not (node.get("Index Name") == index and node["Node Type"].startswith("Index") and node.get("Index Cond"))]
    if not reads:
        wrong = [f"no access to {table}"]
    return [_fault(statement, index, wrong)] if wrong else []


def judge_sqlite(statement: str, plan: Sequence[str], tables: Sequence[str], access: str) -> list[Finding]:
    """`plan` are the lines of EXPLAIN QUERY PLAN; every one about one of `tables` (names or aliases) has to be a search with `access`."""
    reads = [line for line in plan if any(line.startswith((f"SCAN {table}", f"SEARCH {table}")) for table in tables)]
    wrong = [line for line in reads if not (line.startswith("SEARCH") and access in line)]
    if not reads:
        wrong = [f"no access to {tables[0]}"]
    return [_fault(statement, access, wrong)] if wrong else []


def judge(faults: Sequence[Finding], invalid_indexes: Sequence[str], statements: Sequence[str]) -> list[Finding]:
    """Put the faults of the single plans together with what the catalogue says."""
    found = list(faults)
    if invalid_indexes:
        text = f"invalid indexes, which are kept up and not used: {', '.join(invalid_indexes)}"
        found.append(problem(Check.PLAN, text, "REINDEX INDEX CONCURRENTLY outlast.<name>"))
    return all_or_ok(found, Check.PLAN, f"{' and '.join(statements)} are served by their indexes")


def _fault(statement: str, index: str, wrong: Sequence[str]) -> Finding:
    return problem(Check.PLAN, f"{statement} is not served by {index} but by: {'; '.join(wrong)}. Claims get slower with every run that is kept", _REMEDY)


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from _nodes(below)


def _shown(node: dict[str, Any]) -> str:
    return f"{node['Node Type']} on {node['Relation Name']}{' using ' + node['Index Name'] if 'Index Name' in node else ''}"
