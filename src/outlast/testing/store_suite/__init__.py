"""The promises of `outlast.native.store.Store`, written once. An adapter gives a fixture `backend` on an empty database with its schema."""

from .accepting import AcceptingSuite
from .acting import ActingSuite
from .claiming import ClaimingSuite
from .committing import CommittingSuite
from .history import HistorySuite
from .mailing import MailingSuite
from .mixing import MixingSuite
from .naming import NamingSuite, QuestionsSuite
from .orphans import OrphansSuite
from .pruning import PruningSuite
from .reading import ReadingSuite
from .resuming import ResumingSuite
from .sending import SendingSuite
from .timers import TimersSuite
from .upkeep import DiscardingSuite, QueuesSuite
from .workers import WorkersSuite


class StoreSuite(
    AcceptingSuite,
    ClaimingSuite,
    HistorySuite,
    CommittingSuite,
    MixingSuite,
    NamingSuite,
    MailingSuite,
    SendingSuite,
    QuestionsSuite,
    TimersSuite,
    WorkersSuite,
    OrphansSuite,
    ReadingSuite,
    ResumingSuite,
    ActingSuite,
    QueuesSuite,
    DiscardingSuite,
    PruningSuite,
):
    """Subclass it in a test module, beside a fixture `backend`."""


__all__ = ["StoreSuite"]
