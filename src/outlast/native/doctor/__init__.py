"""What is wrong with a database, or with the fleet on it? Twelve checks, which change nothing.

Theory of operation. An *examiner* (the port; one on each database) reads facts, and pure functions judge them: one file
a subject, facts in, findings out, no I/O. The *doctor* asks for one examination after the other, bounds each in time,
and turns an answer that did not come into a finding: whatever is wrong, it never raises. What an examination needs
(the database, its schema) and is not there makes it not applicable, so that one fault shows once and not twelve times.

    problem   a promise does not hold, or runs do not move
    warning   it works, and is slower, or less safe, than it could be
"""

from outlast.finding import Check, Finding, Level

from .doctor import examine
from .examiner import Examination, Examiner, Needs

__all__ = ["Check", "Examination", "Examiner", "Finding", "Level", "Needs", "examine"]
