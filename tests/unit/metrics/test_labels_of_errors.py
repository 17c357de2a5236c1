"""Labels of metrics are classes of errors and fixed words: records that make texts, or classes, make no series each."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import StreamsBuilder
from penstock.metrics import prometheus_text
from penstock.testing import TopologyTestDriver

RECORDS = 400
SETTINGS = {
    "default.key.serde": "string", "default.value.serde": "string", "processing.exception.handler": "continue",
    "deserialization.exception.handler": "continue", "production.exception.handler": "continue",
}  # fmt: skip
ON_A_PAGE = 60  # labels that the same error without any difference brings, and some more


def same_class(value: str) -> str:
    raise ValueError(f"no number: {value}")


def own_class(value: str) -> str:
    raise type(f"Error{value}", (ValueError,), {})(value)


def number(value: str) -> Any:
    return {"to": int(value)}  # what a serde of text does not write


def series(function: Any, count: int) -> list[str]:
    """The series about errors and drops after so many records, each of which fails with a text of its own."""
    builder = StreamsBuilder()
    builder.stream("in").map_values(function).to("out")
    with TopologyTestDriver(builder.build(), SETTINGS) as driver:
        topic = driver.input_topic("in")
        for number in range(count):
            topic.pipe(f"{number:04}", key="k")
        lines = prometheus_text(driver.metrics).splitlines()
    found = [line for line in lines if 'reason="' in line or 'kind="' in line]
    assert sum(float(line.rpartition(" ")[2]) for line in found if 'reason="' in line) == count
    return found


@pytest.mark.parametrize("function", [same_class, number])
def test_as_many_series_as_classes_whatever_the_texts(function: Any) -> None:
    assert len(series(function, RECORDS)) == len(series(function, 1)) == 2


def test_classes_that_records_name_are_bounded() -> None:
    found = series(own_class, RECORDS)
    assert len(found) <= ON_A_PAGE
    assert any('reason="other reasons"' in line for line in found)
    assert any('kind="other errors"' in line for line in found)


def test_errors_of_many_workers_are_bounded_where_they_come_together() -> None:
    from penstock.metrics import MetricRegistry, RecordingLevel
    from penstock.metrics.task_counts import TaskCounts
    from penstock.metrics.task_metrics import TaskMetrics, TaskOf

    builder = StreamsBuilder()
    builder.stream("in", name="source").to("out", name="sink")
    registry = MetricRegistry(RecordingLevel.INFO, clock=lambda: 0)
    task = TaskMetrics(registry, builder.build(), TaskOf("t", "0_0", ("source", "sink"), str))
    for worker in range(RECORDS):
        counts = TaskCounts(dropped=1)
        counts.reasons["source", f"Error{worker}"] = 1
        counts.errors["source", f"Error{worker}", "continue"] = 1
        task.record(counts)
    lines = prometheus_text(registry).splitlines()
    for label in ('reason="', 'kind="'):
        found = [line for line in lines if label in line]
        assert len(found) <= ON_A_PAGE
        assert sum(float(line.rpartition(" ")[2]) for line in found) == RECORDS
