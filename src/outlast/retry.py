"""RetryPolicy: when to try again. Pure arithmetic; the random part is given by the caller."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from outlast.duration import Duration, as_duration
from outlast.errors import UsageError
from outlast.failure import Failure, type_name


@dataclass(frozen=True)
class RetryPolicy:
    """How often something is attempted, and how long to wait in between.

    The delay before attempt n + 1 is `initial_delay * factor ** (n - 1)`, at most `maximum_delay`, and spread by
    `jitter` to either side so that what failed together does not come back together.
    """

    maximum_attempts: int = 3
    """Attempts in all, the first one included."""
    initial_delay: Duration = "1s"
    maximum_delay: Duration = "60s"
    factor: float = 2.0
    jitter: float = 0.2
    """Share of the delay, 0 to 1, by which it is lengthened or shortened at random."""
    final: tuple[type[BaseException], ...] = ()
    """Errors that no further attempt can help; classes below these count too."""
    initial: timedelta = field(init=False, repr=False, compare=False)
    maximum: timedelta = field(init=False, repr=False, compare=False)
    final_names: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _is_number(self.maximum_attempts, 1, 1_000_000, int):
            raise UsageError(f"maximum_attempts is {self.maximum_attempts!r}: write a whole number from 1 to 1,000,000")
        if not _is_number(self.factor, 1, 100):
            raise UsageError(f"factor is {self.factor!r}: write a number from 1 to 100")
        if not _is_number(self.jitter, 0, 1):
            raise UsageError(f"jitter is {self.jitter!r}: write a share from 0 to 1")
        if not _are_errors(self.final):
            raise UsageError(f"final is {self.final!r}: write a tuple of exception classes")
        try:
            initial, maximum = as_duration(self.initial_delay, "initial_delay"), as_duration(self.maximum_delay, "maximum_delay")
        except ValueError as error:
            raise UsageError(str(error)) from None
        if initial > maximum:
            raise UsageError(f"initial_delay {self.initial_delay!r} is longer than maximum_delay {self.maximum_delay!r}: raise the latter")
        object.__setattr__(self, "initial", initial)
        object.__setattr__(self, "maximum", maximum)
        object.__setattr__(self, "final_names", frozenset(type_name(error) for error in self.final))

    def is_exhausted(self, attempts: int, failure: Failure) -> bool:
        """Tell whether attempt number `attempts`, which ended with `failure`, was the last one."""
        return attempts >= self.maximum_attempts or self.is_final(failure)

    def is_final(self, failure: Failure) -> bool:
        """Tell whether no further attempt can help; in a group one final member is enough."""
        if failure.is_final or any(failure.is_named(name) for name in self.final_names):
            return True
        return any(self.is_final(member) for member in failure.members)

    def delay(self, attempts: int, random: float) -> timedelta:
        """Return how long to wait after attempt number `attempts`; `random` is in [0, 1)."""
        maximum = self.maximum.total_seconds()
        seconds = min(self._unbounded(max(attempts, 1) - 1), maximum)
        spread = seconds * (1 + self.jitter * (2 * random - 1))
        # What the spread puts beyond the maximum is mirrored at it: cut off there, half of what failed together would come back together.
        return timedelta(seconds=spread if spread <= maximum else 2 * maximum - spread)

    def _unbounded(self, exponent: int) -> float:
        try:
            return self.initial.total_seconds() * self.factor**exponent
        except OverflowError:
            return self.maximum.total_seconds() if self.initial else 0.0


def _is_number(value: Any, low: float, high: float, kind: Any = int | float) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and bool(low <= value <= high)


def _are_errors(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(error, type) and issubclass(error, BaseException) for error in value)


ONCE = RetryPolicy(maximum_attempts=1)
"""The default of tasks: a body is not run again after it ended with an error."""
STEP_DEFAULT = RetryPolicy()
"""The default of steps and effects."""
NETWORK = RetryPolicy(maximum_attempts=5, initial_delay="1s", maximum_delay="60s")
"""For calls over a network."""
FILES = RetryPolicy(maximum_attempts=3, initial_delay="1s", maximum_delay="10s")
"""For work on files."""
