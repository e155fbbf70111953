"""The benchmark's SQL by name, from the `.sql` file beside the module that uses it. It knows nothing of what it loads."""

import re
from functools import cache
from pathlib import Path
from typing import LiteralString, cast


@cache
def load_statements(module_file: str) -> dict[str, LiteralString]:
    """Return the statements of the `.sql` file that has the module's name, by their `-- name:` lines."""
    text = Path(module_file).with_suffix(".sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)
    return cast(dict[str, LiteralString], dict(zip(parts[1::2], parts[2::2], strict=True)))
