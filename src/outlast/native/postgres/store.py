"""PostgresStore: the native engine's store on PostgreSQL, put together from its parts.

It holds no state and never begins or commits. Every statement is in `statements/`, one file a noun.
"""

from .accepting import Accepting
from .acting import Acting
from .actions import Actions
from .claiming import Claiming
from .committing import Committing
from .contexts import Contexts
from .mailbox import Mailbox
from .reading import Reading
from .timers import Timers
from .upkeep import Upkeep
from .workers import Workers


class PostgresStore(Accepting, Claiming, Contexts, Committing, Timers, Workers, Reading, Acting, Actions, Upkeep, Mailbox):
    """See `outlast.native.store.Store`, which says what each method promises."""
