from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.punctuation import PriorityQueue, PunctuationQueue, Schedule


@given(st.lists(st.integers(0, 5)))
def test_smallest_first(ranks):
    queue = PriorityQueue(lambda rank: rank)
    for rank in ranks:
        queue.add(rank)
    assert [queue.poll() for _ in ranks] == sorted(ranks)
    assert queue.poll() is queue.peek() is None


def test_ties_are_decided_as_in_java():
    # What java.util.PriorityQueue gives for these entries, which are equal in rank.
    queue = PriorityQueue(lambda entry: 0)
    for entry in "abcde":
        queue.add(entry)
    assert "".join(queue.poll() for _ in range(5)) == "aedcb"


def test_missed_punctuations_are_skipped_and_cancelled_ones_gone():
    queue, fired = PunctuationQueue(), []
    schedule = Schedule("p", 0, 100, fired.append, "meta")
    queue.add(schedule)
    for now in (0, 50, 350, 399, 400):
        queue.fire(now, lambda s, now=now: s.callback(now))
    assert fired == [0, 350, 400]
    schedule.cancel()
    queue.fire(1000, lambda s: s.callback(1000))
    assert fired == [0, 350, 400]
    assert queue.nodes() == set()
