"""The promises of an engine, written once. An adapter gives two fixtures: `make_engine(tasks=..., **options)`, which returns a
`SkippingEngine` on one new database and one clock at each call of a test, and `capabilities`, from which skips follow."""

from .accepting import AcceptingSuite, DeadlinesSuite, KeysSuite
from .asking import AskingSuite, SharedKeysSuite
from .attempts import AttemptsSuite, ServicesSuite
from .canceling import CancelingSuite
from .conditions import ConditionsSuite, FailingChecksSuite, FirstSuite, QuestionsSuite
from .deciding import DecidingSuite
from .effects import EffectsSuite, ReconcilingSuite
from .named_waits import SignalsSuite
from .operating import OperatingSuite
from .plain_bodies import PlainBodiesSuite
from .plain_endings import PlainEndingsSuite
from .plain_time import PlainTimeSuite
from .results import ResultsSuite
from .signal_races import SignalRacesSuite
from .sleeping import SleepingSuite
from .steps import RetriesSuite, StepsSuite
from .stopping import StoppingSuite
from .taking_over import TakingOverSuite
from .upkeep import UpkeepSuite
from .versions import ChangedCodeSuite, VersionsSuite


class EngineSuite(
    AcceptingSuite,
    KeysSuite,
    DeadlinesSuite,
    StepsSuite,
    RetriesSuite,
    EffectsSuite,
    ReconcilingSuite,
    AskingSuite,
    SharedKeysSuite,
    AttemptsSuite,
    ServicesSuite,
    SleepingSuite,
    SignalsSuite,
    ConditionsSuite,
    FailingChecksSuite,
    FirstSuite,
    QuestionsSuite,
    SignalRacesSuite,
    PlainBodiesSuite,
    PlainTimeSuite,
    PlainEndingsSuite,
    VersionsSuite,
    ChangedCodeSuite,
    CancelingSuite,
    StoppingSuite,
    TakingOverSuite,
    ResultsSuite,
    OperatingSuite,
    DecidingSuite,
    UpkeepSuite,
):
    """Subclass it in a test module, beside the two fixtures."""


__all__ = ["EngineSuite"]
