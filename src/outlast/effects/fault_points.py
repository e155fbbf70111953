"""Fault points: the named places of a copy or a move at which a test kills, freezes or interferes. They do nothing."""

NAMES = (
    "source opened",
    "stage opened",
    "chunk written",
    "stage written",
    "stage synced",
    "stage finished",
    "published",
    "folder synced",
    "source leaves",
    "source removed",
    "stage removed",
    "attempt revoked",
)
"""In the order in which they are reached, the last one by a reconciler. A copy has no source that leaves; a file that is renamed has no chunks."""


def reached(point: str) -> None:
    """Do nothing. A test replaces it, in a process of its own."""
