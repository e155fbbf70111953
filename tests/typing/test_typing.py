"""What users see in their editor: the files in `cases/` under mypy and pyright, against the expectations written in them.

A line that ends in `# expect-error` must be reported by both checkers, and no other line by either.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))
Place = tuple[str, int]


def expected() -> set[Place]:
    return {(case.name, number) for case in CASES for number, line in enumerate(case.read_text().splitlines(), 1) if line.endswith("# expect-error")}


def run(tool: list[str], folder: Path) -> str:
    """Return what a checker printed; it must have ended by itself, with or without errors found."""
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src"), "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run([sys.executable, "-m", *tool, *map(str, CASES)], capture_output=True, text=True, cwd=folder, env=environment, timeout=280)
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    return ended.stdout


def mypy(folder: Path) -> dict[Place, str]:
    printed = run(
        ["mypy", "--strict", "--python-version=3.11", "--config-file=", f"--cache-dir={folder / 'cache'}", "--no-error-summary", "--hide-error-context"], folder
    )
    found = re.findall(r"^(.+?):(\d+): error: (.*)$", printed, re.MULTILINE)
    return {(Path(file).name, int(line)): message for file, line, message in found}


def pyright(folder: Path) -> dict[Place, str]:
    settings = {"typeCheckingMode": "standard", "pythonVersion": "3.11", "extraPaths": [str(ROOT / "src")], "include": [str(CASES[0].parent)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    printed = json.loads(run(["pyright", "--outputjson", "--project", str(folder), "--pythonpath", sys.executable], folder))
    found = [one for one in printed["generalDiagnostics"] if one["severity"] == "error"]
    return {(Path(one["file"]).name, one["range"]["start"]["line"] + 1): one["message"] for one in found}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_checker_reports_exactly_what_is_expected(checker, tmp_path):
    """Right code passes and each mistake marked in the cases is reported, by the two checkers that people use."""
    found = checker(tmp_path)
    assert {place: found[place] for place in sorted(found.keys() - expected())} == {}, "reported, and not expected"
    assert sorted(expected() - found.keys()) == [], "expected, and not reported"
