"""The test driver's metrics are those of Kafka Streams' test driver, series by series."""

from __future__ import annotations

import pytest

from metric_cases import differences, metrics_of, recorded
from samples import sample
from test_recorded import CASES

RECORDED = recorded()
SAMPLE = {case["file"]: case for case in sample([case for case in CASES.values() if case["file"] in RECORDED], 60)}
# Java's driver takes a pattern for a topic; an application names the topics.
BY_PATTERN = "pattern-source"
# Of a record that an extractor drops Kafka counts the bytes of the one before, here its own are counted.
DROPPED_BY_EXTRACTOR = "ts-extractor-drop"


@pytest.mark.parametrize(
    "name", [*SAMPLE, *(pytest.param(name, marks=pytest.mark.whole) for name in RECORDED if name not in SAMPLE)]
)
def test_series_of_a_recorded_case(name: str) -> None:
    series, unexplained = metrics_of(CASES[name])
    assert unexplained == 0
    found = list(differences(RECORDED[name], series))
    if BY_PATTERN in name:
        found = [one for one in found if "consumed-total" not in one]
    elif DROPPED_BY_EXTRACTOR in name:
        found = [one for one in found if "bytes-consumed-total" not in one]
    assert found == []


def test_every_compared_metric_is_recorded_with_values_that_are_not_zero() -> None:
    seen = {series[1] for rows in RECORDED.values() for series, value in rows.items() if value}
    assert len(seen) == 19
