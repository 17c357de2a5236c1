"""The charts of a range: steps of batches and of minutes, and the same time before."""

from __future__ import annotations

from typing import Any

from penstock.console.app_view import BatchLine, Minute, Picture
from penstock.console.web.pages.batches import RANGES, charts_of, range_of

NOW = 1_790_000_030_000
MINUTE = NOW // 60_000 * 60_000
DAY = 86_400_000


def picture(lines: list[BatchLine], **facts: Any) -> Picture:
    return Picture({"state": "RUNNING", "written_ms": NOW, **facts}, lines)


def line(number: int, end_ms: int, records: int = 100, lag: int = 7) -> BatchLine:
    return BatchLine(number, end_ms, 0.5, records, records // 2, 0, lag, 1.0, 0, {})


def values(charts: dict[str, Any], chart: int, at: int = 0) -> dict[int, Any]:
    return dict(zip(charts["times"], charts["charts"][chart]["lines"][at]["values"], strict=True))


def test_batches_are_rates_of_five_seconds_and_gaps_are_zeros() -> None:
    begin = NOW // 5_000 * 5_000 - 60_000
    lines = [line(n, begin + n * 1_000) for n in range(10)] + [line(10, begin + 30_000)]
    charts = charts_of(picture(lines), [], range_of("15m"), 0, NOW)
    rates = values(charts, 0)
    assert [rates[(begin + at) // 1000] for at in (0, 5_000, 10_000, 30_000)] == [100, 100, 0, 20]
    assert rates[begin // 1000 - 5] is None
    assert values(charts, 0, 1)[begin // 1000] == 50
    assert values(charts, 2)[begin // 1000] == 0.5
    assert [each["unit"] for each in charts["charts"]] == ["/s", "records", "s"]


def test_long_batches_are_spread_over_the_time_in_which_they_ran() -> None:
    begin = NOW // 5_000 * 5_000 - 120_000
    lines = [BatchLine(n, begin + n * 20_000, 18.0, 36_000, 18_000, 0, 50 + n, 1.0, 0, {}) for n in range(1, 6)]
    charts = charts_of(picture(lines), [], range_of("15m"), 0, NOW)
    taken, lags, seconds = (values(charts, chart) for chart in range(3))
    steps = range(begin + 20_000, begin + 40_000, 5_000)  # two seconds of waiting, then the second batch
    assert [taken[at // 1000] for at in steps] == [1_200, 2_000, 2_000, 2_000]
    assert sum(value or 0 for value in taken.values()) * 5 == 5 * 36_000
    assert [lags[at // 1000] for at in steps] == [51, 51, 51, 52]  # the last known one
    assert {seconds[at // 1000] for at in steps} == {18.0}
    hours = [BatchLine(1, NOW - 60_000, 7_200.0, 7_200_000, 0, 0, 5, 1.0, 0, {})]  # longer than the range
    assert set(values(charts_of(picture(hours), [], range_of("15m"), 0, NOW), 0).values()) == {1_000, None}


def test_minutes_go_before_the_batches_that_are_kept() -> None:
    lines = [line(n, MINUTE - 60_000 + n * 1_000) for n in range(30)]
    minutes = [Minute(MINUTE - n * 60_000, 60, 30.0, 6_000, 600, 0, 9).row() for n in range(10, -1, -1)]
    rates = values(charts_of(picture(lines), minutes, range_of("15m"), 0, NOW), 0)
    assert {rates[at // 1000] for at in range(MINUTE - 120_000, MINUTE - 60_000, 5_000)} == {100}
    hour = charts_of(picture(lines), minutes, range_of("1h"), 0, NOW)
    assert (values(hour, 0)[MINUTE // 1000 - 60], values(hour, 1)[MINUTE // 1000 - 60]) == (100, 9)
    assert MINUTE // 1000 not in hour["times"]  # it is not over


def test_a_day_is_compared_with_the_same_time_of_the_day_before() -> None:
    minutes = [Minute(MINUTE - DAY - n * 60_000, 1, 0.1, 120, 60, 0, n).row() for n in range(60, 0, -1)]
    minutes += [Minute(MINUTE - n * 60_000, 1, 0.1, 600, 60, 0, n).row() for n in range(60, 0, -1)]
    for shown in RANGES:
        charts = charts_of(picture([]), minutes, shown, DAY, NOW)
        own, past = charts["charts"][0]["lines"][:2]
        assert (own["label"], past["label"], past["is_past"]) == ("in", "in, a day before", True)
        at = charts["times"].index((MINUTE - 600_000) // shown.step_ms * shown.step_ms // 1000)
        assert (own["values"][at], past["values"][at]) == (10, 2)
    assert len(charts_of(picture([]), minutes, range_of("1d"), 0, NOW)["times"]) <= 290


def test_an_application_without_history_has_empty_charts() -> None:
    charts = charts_of(Picture({}), [], range_of("none"), 3_600_000, NOW)
    assert all(value is None for chart in charts["charts"] for each in chart["lines"] for value in each["values"])
