"""Phase: where an execution of a run stands."""

from enum import Enum, auto


class Phase(Enum):
    """Where an execution stands."""

    RUNNING = auto()
    TOLD = auto()
    """The body was asked to end, and has not yet."""
    ENDING = auto()
    """The body is closed or has ended; what it leaves behind is being written."""
    OVER = auto()
