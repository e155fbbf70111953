"""The checker: every invariant by its name, and all of them at once. It asks the engine nothing and imports nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .checks_calls import l3, s21, s22, v3
from .checks_end import b01, l1, l4, l8, s29, v1
from .checks_leases import s9, s10, s11, s12, s13
from .checks_runs import s1, s2, s3, s4, s5, s6, s7, s8, s18, s19
from .evidence import Evidence, Violation

SAFETY = (s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s18, s19, s21, s22, s29)
LIVENESS = (l1, l3, l4, l8, b01)
SUFFICIENCY = (v1, v3)
"""Whether the trial proves anything."""

Check = Callable[[Evidence], Iterator[Violation]]


def violations(evidence: Evidence, checks: tuple[Check, ...] = (*SAFETY, *LIVENESS, *SUFFICIENCY)) -> list[Violation]:
    """Return everything that does not hold. A check that meets rows which refer to nothing says so and holds up no other."""
    found: list[Violation] = []
    for check in checks:
        try:
            found += check(evidence)
        except (KeyError, IndexError, TypeError) as error:
            found.append(Violation(check.__name__.upper(), f"it cannot be checked, because something is missing: {error!r}"))
    return found
