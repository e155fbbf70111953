"""Lanes: how bounded counts add up, where a sample was cut short, and who lacks what."""

from outlast.inspector import BoundedCount
from outlast.limits import LANE_COUNT_MAX, LANE_SAMPLE_MAX
from outlast.native.lanes import Asleep, Counted, Served, added, bounded, lane_rows, why_unserved

MAIL = Counted(1, "mail", "send", 1, None, 3, 2)
BULK = Counted(2, "bulk", "send", 2, None, 0, 0)


def test_a_count_says_when_it_ended():
    """What was counted one beyond the bound is the bound and more."""
    assert [str(bounded(number)) for number in (0, LANE_COUNT_MAX, LANE_COUNT_MAX + 1)] == ["0", "1000", "1000+"]
    assert bounded(0, may_be_more=True) == BoundedCount(0, True)


def test_counts_are_added():
    """A sum has a bound too, and what may be more stays so."""
    assert added(BoundedCount(2), BoundedCount(3)) == BoundedCount(5)
    assert added(BoundedCount(2), BoundedCount(0, True)) == BoundedCount(2, True)
    assert added(BoundedCount(800), BoundedCount(800)) == BoundedCount(LANE_COUNT_MAX, True)


def test_a_whole_sample_counts_exactly():
    """Each lane has its own, and one of which nothing was seen has nothing."""
    mail, bulk = lane_rows([MAIL, BULK], {Served("bulk", "send", 2)}, {1: 4}, {1: Asleep(5, 1)})
    assert (mail.pending, mail.running, mail.waiting, mail.overdue) == (BoundedCount(3), BoundedCount(4), BoundedCount(7), BoundedCount(1))
    assert (bulk.pending, bulk.running, bulk.waiting, bulk.overdue) == (BoundedCount(0),) * 4
    assert (mail.is_served, bulk.is_served) == (False, True)


def test_a_sample_that_was_cut_says_so_in_every_lane():
    """Where more than the sample sleep or run, a lane of which none was seen may have some; the overdue come first, and were all seen."""
    mail, bulk = lane_rows([MAIL, BULK], set(), {1: LANE_SAMPLE_MAX + 1}, {1: Asleep(LANE_SAMPLE_MAX + 1, 9)})
    assert (bulk.running, bulk.waiting, bulk.overdue) == (BoundedCount(0, True), BoundedCount(0, True), BoundedCount(0))
    assert mail.overdue == BoundedCount(9)
    mail, bulk = lane_rows([MAIL, BULK], set(), {}, {1: Asleep(LANE_SAMPLE_MAX + 1, LANE_SAMPLE_MAX + 1)})
    assert (mail.overdue, bulk.overdue) == (BoundedCount(LANE_COUNT_MAX, True), BoundedCount(0, True))


def test_who_lacks_what():
    """A worker, the kind, the version, or the queue: the nearest miss is named."""
    lived = [Served("mail", "send", 1), Served("bulk", "send", 1), Served("mail", "send", 3), Served("mail", "print", 2)]
    assert why_unserved("mail", "send", 1, lived) is None
    assert why_unserved("night", "send", 1, lived) == "workers have send v1 only in queue bulk and mail"
    assert why_unserved("mail", "send", 2, lived) == "no worker has send v2, only v1 and v3"
    assert why_unserved("mail", "fold", 1, lived) == "no worker has fold"
    assert why_unserved("mail", "send", 1, []) == "no worker lives, or has within the last minute"
