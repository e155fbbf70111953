"""SqliteStore: the native engine's `Store` on SQLite, put together from its parts. It has no statements of its own."""

from .accepting import Accepting
from .acting import Acting
from .claiming import Claiming
from .committing import Committing
from .contexts import Contexts
from .reading import Reading
from .timers import Timers
from .upkeep import Upkeep
from .workers import Workers


class SqliteStore(Accepting, Claiming, Contexts, Committing, Timers, Workers, Reading, Acting, Upkeep):
    """Each part is a file of the same name, with its statements beside it."""
