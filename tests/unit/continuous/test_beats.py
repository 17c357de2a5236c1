from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.continuous.beats import Beats

TIMES = st.floats(0, 10**7)


@given(TIMES, st.floats(0.001, 1), st.integers(0, 200))
def test_the_next_time_is_half_an_interval_away_at_most(now_s: float, interval_s: float, number: int) -> None:
    beats = Beats(interval_s, f"thread-{number}")
    nearest = beats.nearest(now_s)
    assert abs(nearest - now_s) <= interval_s / 2 + 1e-6
    assert beats.nearest(nearest + interval_s) == pytest.approx(nearest + interval_s, abs=1e-6)


def test_threads_take_turns() -> None:
    for count in (2, 3, 4, 8):
        phases = sorted(Beats(0.01, f"thread-{number}").nearest(100.0) % 0.01 for number in range(count))
        gaps = [after - before for before, after in zip(phases, [*phases[1:], phases[0] + 0.01], strict=True)]
        assert min(gaps) > 0.01 / (3 * count)


def test_long_intervals_and_none_begin_when_they_are_asked_for() -> None:
    assert Beats(0.0, "thread-1").nearest(7.33) == 7.33
    assert Beats(30.0, "thread-1").nearest(7.33) == 7.33
    assert Beats(0.1, "solo").nearest(7.33) == pytest.approx(7.3)
