"""Findings as the doctor's tests compare them."""

from outlast.finding import Level


def levels(findings):
    """The levels, after making sure that whatever is wrong says what to do, and nothing else does."""
    for finding in findings:
        assert bool(finding.remedy) == (finding.level in (Level.WARNING, Level.PROBLEM)), finding
    return [finding.level for finding in findings]


def text(findings):
    """All that is said, in one text."""
    return " ".join(f"{finding.message} {finding.remedy}" for finding in findings)
