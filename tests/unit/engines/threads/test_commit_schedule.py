from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.threads.loop.commit import CommitSchedule

TIMES = st.floats(0, 10**7)


@given(TIMES, st.floats(0.001, 1), st.integers(0, 200))
def test_an_interval_lasts_half_to_one_and_ends_with_the_turn(now_s: float, interval_s: float, number: int) -> None:
    schedule = CommitSchedule(interval_s, f"thread-{number}")
    due = schedule.since(now_s) + interval_s
    assert interval_s * 0.5 - 1e-6 <= due - now_s <= interval_s * 1.01 + 1e-6
    if schedule.since(due) != pytest.approx(due, abs=1e-6):  # there was one on the way
        due = schedule.since(due) + interval_s
    assert schedule.since(due) == pytest.approx(due, abs=1e-6)


def test_threads_take_turns() -> None:
    def turn(schedule: CommitSchedule) -> float:
        """Return when it commits after one commit on the way."""
        return schedule.since(schedule.since(100.0) + 0.01) % 0.01

    for count in (2, 3, 4, 8):
        phases = sorted(turn(CommitSchedule(0.01, f"thread-{number}")) for number in range(count))
        gaps = [after - before for before, after in zip(phases, [*phases[1:], phases[0] + 0.01], strict=True)]
        assert min(gaps) > 0.01 / (3 * count)


def test_long_intervals_and_none_begin_when_they_are_asked_for() -> None:
    assert CommitSchedule(0.0, "thread-1").since(7.33) == 7.33
    assert CommitSchedule(30.0, "thread-1").since(7.33) == 7.33
    assert CommitSchedule(0.1, "solo").since(7.33) == pytest.approx(7.3)
