"""StepKey: which durable call of a run is meant, the same at every replay whatever finishes first.

`path` is the chain of branches that leads to the call: `()` in the body's own asyncio task, and in a child task the
parent's path and the child's index among its parent's children. `number` counts calls of equal name within one path.
"""

from typing import NamedTuple


class StepKey(NamedTuple):
    """The identity of a durable call within a run and generation."""

    path: tuple[int, ...]
    name: str
    number: int = 0

    def __str__(self) -> str:
        """Return the text form: `locate`, `locate:1`, `0.1/locate:1`."""
        name = f"{self.name}:{self.number}" if self.number else self.name
        return f"{self.path_text}/{name}" if self.path else name

    @property
    def path_text(self) -> str:
        """Return the path as it is stored: `0.1`, and empty for the body's own task."""
        return ".".join(map(str, self.path))


def parse_path(text: str) -> tuple[int, ...]:
    """Return the path that `path_text` gave."""
    return tuple(map(int, text.split("."))) if text else ()
