"""Screen: the demo as people see it. A live table on a terminal, plain lines elsewhere, JSON for programs.

It only shows; file names are escaped here.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from outlast.cli.output import bytes_text, escaped, print_json, print_line
from outlast.clock import SystemClock
from outlast.run import RunStatus

from .crew import Crew
from .watch import FileState, Watch

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

LINES_EVERY_SECONDS = 2.0
ROWS_MAX = 12
NAME_CHARACTERS = 26
STATE_STYLES = {"working": "green", "killed": "bold red", "frozen": "bold blue", "thawed": "yellow", "stopped": "dim", "ended": "red"}


class Screen(Protocol):
    """What the demo tells."""

    def say(self, text: str) -> None:
        """Tell something that happened."""
        ...

    def show(self, watch: Watch, crew: Crew) -> None:
        """Show where everything is."""
        ...

    def __enter__(self) -> Screen: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class JsonScreen:
    """One line of JSON for each thing that happened."""

    def say(self, text: str) -> None:
        print_json({"event": text})

    def show(self, watch: Watch, crew: Crew) -> None:
        pass

    def __enter__(self) -> JsonScreen:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass


class LineScreen:
    """Plain lines, for a pipe or a log."""

    def __init__(self) -> None:
        self._started = self._shown = SystemClock().monotonic()

    def say(self, text: str) -> None:
        print_line(f"{SystemClock().monotonic() - self._started:5.1f} s  {text}")

    def show(self, watch: Watch, crew: Crew) -> None:
        if SystemClock().monotonic() - self._shown >= LINES_EVERY_SECONDS:
            self._shown = SystemClock().monotonic()
            self.say(_summary(watch))

    def __enter__(self) -> LineScreen:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass


class LiveScreen:
    """A table that is drawn anew in its place, with what happened above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._started = SystemClock().monotonic()
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)

    def say(self, text: str) -> None:
        from rich.text import Text

        line = Text(f"{SystemClock().monotonic() - self._started:5.1f} s  ", style="dim")
        self._console.print(line.append(escaped(text), style=_style_of(text)))

    def show(self, watch: Watch, crew: Crew) -> None:
        self._live.update(_picture(watch, crew))

    def __enter__(self) -> LiveScreen:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()


def _style_of(text: str) -> str:
    styles = {"SIGKILL": "bold red", "SIGSTOP": "bold blue", "SIGCONT": "bold yellow", "says": "yellow"}
    return next((style for word, style in styles.items() if f" {word}" in text), "none")


def _summary(watch: Watch) -> str:
    whole = sum(file.file.size for file in watch.files.values())
    return f"{watch.arrived} of {len(watch.files)} files arrived, {bytes_text(watch.bytes_done)} of {bytes_text(whole)} copied"


def _picture(watch: Watch, crew: Crew) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    workers = Text("workers  ")
    for member in crew.members:
        workers.append(f"{member.number} {member.state}  ", style=STATE_STYLES[member.state])
    return Group(Text(), workers, _files_table(watch, crew), _total(watch))


def _files_table(watch: Watch, crew: Crew) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False, expand=True)
    table.add_column(width=NAME_CHARACTERS, no_wrap=True, overflow="ellipsis")
    table.add_column(ratio=1, min_width=8)
    table.add_column(width=5, justify="right", no_wrap=True)
    table.add_column(width=8, no_wrap=True)
    table.add_column(width=15, no_wrap=True)
    active = sorted((file for file in watch.files.values() if _is_under_way(file)), key=lambda file: -file.file.size)
    for file in active[:ROWS_MAX]:
        share = file.done / file.file.size if file.file.size else 0.0
        name = Text(escaped(str(file.file.name)), style="none" if file.status is RunStatus.RUNNING else "dim")
        bar = ProgressBar(total=1.0, completed=share, complete_style="cyan" if file.status is RunStatus.RUNNING else "red")
        table.add_row(name, bar, f"{100 * share:.0f} %", file.step, _who(file, crew))
    return table


def _who(file: FileState, crew: Crew) -> Text:
    """Say which worker has the file, or had it and what became of that worker."""
    from rich.text import Text

    member = crew.find(file.pid)
    if member is None:
        return Text()
    if member.state != "working":
        return Text(f"{member.number} {member.state}", style=STATE_STYLES[member.state])
    return Text(f"taken over by {member.number}", style="yellow") if file.takeovers else Text(f"worker {member.number}")


def _is_under_way(file: FileState) -> bool:
    return file.status is RunStatus.RUNNING or (bool(file.done or file.takeovers) and not file.status.is_terminal)


def _total(watch: Watch) -> Any:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    whole = sum(file.file.size for file in watch.files.values())
    table = Table(box=None, pad_edge=False, show_header=False, expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    table.add_row(_summary(watch), ProgressBar(total=float(whole or 1), completed=watch.bytes_done, complete_style="green"))
    return table
