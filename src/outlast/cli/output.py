"""Output: what a command prints, for people or as JSON for programs.

Everything that came from a database or a file name is escaped here, so that no text in it can move the cursor, change
colours or break a line. It never decides what is printed.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TextIO

import click
import msgspec

from outlast.decision import DecisionView
from outlast.decisions.attention import AttentionItem, AttentionPage
from outlast.inspector import OperationView, RunPage
from outlast.run import RunView, StepView

TEXT_FIELDS = ("input", "output", "result", "arguments", "late", "about")
"""Fields of views that are JSON text."""
LAST_COLUMN_WIDTH_MIN = 24
"""On a screen that leaves it less, a table's last column goes below its row."""


def escaped(text: str) -> str:
    """Return `text` with everything that a terminal might obey, or not show, written out: controls, directions, surrogates."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(ord(character)) for character in text)


def _escape(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def print_line(text: str = "", *, file: TextIO | None = None) -> None:
    """Print one line, escaped."""
    click.echo(escaped(text), file=file)


def print_json(value: Any) -> None:
    """Print one line of JSON in pure ASCII, so that it passes every pipe and terminal."""
    click.echo(json.dumps(plain(value)))


def plain(value: Any) -> Any:
    """Return a view, or a container of views, as plain JSON values; what a view holds as JSON text is the value itself."""
    if isinstance(value, AttentionPage):
        return {"attention": plain(value.items), "next": value.next}
    if isinstance(value, AttentionItem):
        return msgspec.to_builtins(value) | {"decision": plain(value.decision), "failed": plain(value.failed)}
    if isinstance(value, RunView | StepView | DecisionView):
        return _with_values(msgspec.to_builtins(value))
    if isinstance(value, OperationView):
        fields: dict[str, Any] = msgspec.to_builtins(value)
        return _with_values(fields) | {"attempts": [_with_values(attempt) for attempt in fields["attempts"]]}
    if isinstance(value, RunPage):
        return {"runs": plain(value.runs), "next": value.next}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return msgspec.to_builtins(value)


def _with_values(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {name: json.loads(fields[name] or "null") for name in TEXT_FIELDS if isinstance(fields.get(name), str)}


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under their columns: complete, one line a row; on a terminal the last column is cut to the screen, or has its own line."""
    cells = [[escaped(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_fitted([list(columns), *cells])
        return
    widths = [max(len(cell) for cell in column) for column in zip(columns, *cells, strict=True)]
    for row in (list(columns), *cells):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_fitted(rows: list[list[str]]) -> None:
    """The first row is the header. The last column is the text that may be long."""
    from rich.cells import cell_len, set_cell_size
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    widths = [max(cell_len(row[index]) for row in rows) for index in range(len(rows[0]) - 1)]
    has_room = console.width - sum(width + 2 for width in widths) >= LAST_COLUMN_WIDTH_MIN
    for row in rows:
        line = Text(style="bold" if row is rows[0] else "")
        for cell, width in zip(row, widths, strict=False):
            line.append(f"{set_cell_size(cell, width)}  ", style=_STYLES.get(cell))
        if has_room:
            line.append(row[-1], style=_STYLES.get(row[-1]))
        console.print(line, no_wrap=True, overflow="ellipsis")
        if not has_room and row is not rows[0] and row[-1]:
            console.print(Text(f"  {row[-1]}", style="dim"), no_wrap=True, overflow="ellipsis")


_STYLES = {
    "running": "cyan",
    "succeeded": "green",
    "done": "green",
    "alive": "green",
    "failed": "red",
    "dead": "bold red",
    "canceled": "yellow",
    "waiting": "blue",
    "in_progress": "cyan",
    "retrying": "yellow",
    "ok": "green",
    "warning": "yellow",
    "problem": "bold red",
}


def instant_text(instant: datetime | None) -> str:
    """Return an instant to the second, in UTC."""
    return "" if instant is None else f"{instant:%Y-%m-%d %H:%M:%S}Z"


def span_text(span: timedelta) -> str:
    """Return a span in its two largest units, which is as exact as an age has to be."""
    seconds = max(span.total_seconds(), 0.0)
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if minutes < 60:
        return f"{minutes}m{int(seconds % 60):02d}s"
    return f"{hours}h{minutes % 60:02d}m" if hours < 24 else f"{days}d{hours % 24:02d}h"


def bytes_text(count: float) -> str:
    """Return a size in the largest binary unit below it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
