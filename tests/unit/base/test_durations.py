from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from penstock.base.durations import duration_ms, format_duration, timestamp_ms
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1 minute", 60_000), ("PT1M", 60_000), (timedelta(minutes=1), 60_000), (60_000, 60_000), ("60000", 60_000), ("1h 30m", 5_400_000),
        ("1ms", 1), ("250 milliseconds", 250), ("1.5 s", 1500), ("P1DT2H", 93_600_000), ("PT0.5S", 500), ("P1W", 604_800_000), ("2 days", 172_800_000),
        ("-PT1S", -1000), ("1 hour, 5 minutes", 3_900_000), ("0", 0), ("1_000ms", 1000),
    ],
)  # fmt: skip
def test_durations(text, wanted):
    assert duration_ms(text) == wanted


@pytest.mark.parametrize(
    "bad", ["", "minute", "1 fortnight", "P", "PT", "1 minute x", "0.5 ms", True, 1.5, None, timedelta(microseconds=5)]
)
def test_no_durations(bad):
    with pytest.raises(ConfigError, match="grace"):
        duration_ms(bad, "grace")


@pytest.mark.parametrize("ms", [0, 1, 1500, 60_000, 93_784_005, -1500])
def test_format_reads_back(ms):
    assert duration_ms(format_duration(ms)) == ms


def test_timestamps():
    wanted = 1_714_564_800_000
    zone = timezone(timedelta(hours=2))
    forms = [
        "2024-05-01T12:00:00Z",
        "2024-05-01 14:00+02:00",
        wanted,
        str(wanted),
        datetime(2024, 5, 1, 12, tzinfo=UTC),
        datetime(2024, 5, 1, 14, tzinfo=zone),
        datetime(2024, 5, 1, 12),  # noqa: DTZ001 - without a zone, on purpose
    ]
    assert [timestamp_ms(form) for form in forms] == [wanted] * len(forms)
    assert timestamp_ms(date(1970, 1, 2)) == timestamp_ms("1970-01-02") == 86_400_000
    for bad in ("soon", True, 1.5, None):
        with pytest.raises(ConfigError):
            timestamp_ms(bad)
