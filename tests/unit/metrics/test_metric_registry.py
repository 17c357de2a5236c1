"""The registry of metrics: levels, statistics, look-ups."""

import math

import pytest

from penstock.errors import ConfigError, InvalidStateError
from penstock.metrics import MetricName, MetricRegistry, RecordingLevel
from penstock.metrics.definitions import DROPPED, E2E_LATENCY, PROCESSED


class Clock:
    def __init__(self):
        self.now_ms = 0

    def __call__(self):
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def registry(clock):
    return MetricRegistry(RecordingLevel.INFO, 30_000, 2, clock=clock)


TAGS = {"thread-id": "main", "task-id": "0_0"}


def test_meters_above_the_recording_level_do_not_exist(registry):
    assert registry.meter(PROCESSED, TAGS) is None
    assert registry.meter(DROPPED, TAGS) is not None
    assert {name.name for name in registry} == {"dropped-records-total", "dropped-records-rate"}


def test_totals_stay_and_rates_forget_what_is_older_than_the_samples(registry, clock):
    meter = registry.meter(DROPPED, TAGS)
    meter.record_many(9, 9, 1, 1)
    assert registry.value("dropped-records-rate") == pytest.approx(9 / 30)
    clock.now_ms = 45_000
    meter.record(1)
    assert registry.value("dropped-records-rate") == pytest.approx(10 / 45)
    clock.now_ms = 61_000
    assert registry.value("dropped-records-rate") == pytest.approx(1 / 46 * 46 / 46, rel=0.6)
    clock.now_ms = 1_000_000
    assert registry.value("dropped-records-rate") == 0
    assert registry.value("dropped-records-total") == 10


def test_means_and_extremes_of_nothing_are_nan(registry, clock):
    meter = registry.meter(E2E_LATENCY, {**TAGS, "processor-node-id": "sink"})
    assert math.isnan(registry.value("record-e2e-latency-avg"))
    meter.record_many(30, 3, 5, 15)
    shown = [registry.value(f"record-e2e-latency-{stat}") for stat in ("avg", "min", "max")]
    assert shown == [10, 5, 15]
    clock.now_ms = 60_000
    assert math.isnan(registry.value("record-e2e-latency-max"))


def test_a_look_up_that_matches_several_metrics_names_them(registry):
    for task in ("0_0", "0_1"):
        registry.meter(DROPPED, {**TAGS, "task-id": task})
    assert registry.value("dropped-records-total", task_id="0_1") == 0
    with pytest.raises(InvalidStateError, match=r"2 metrics are named 'dropped-records-total'.*task-id=0_0"):
        registry.value("dropped-records-total")
    with pytest.raises(InvalidStateError, match="no metric is named 'dropped-records-total' with these tags"):
        registry.value("dropped-records-total", task_id="7_7")
    with pytest.raises(InvalidStateError, match="no metric is named 'process-total' at the recording level INFO"):
        registry.value("process-total")


def test_the_metrics_of_a_task_that_has_gone_are_removed(registry):
    for task in ("0_0", "0_1"):
        registry.meter(DROPPED, {**TAGS, "task-id": task})
    registry.remove("task-id", "0_0")
    assert {name.tag("task-id") for name in registry} == {"0_1"}


def test_a_name_is_its_group_and_tags_and_not_its_description():
    one = MetricName.of("a", "g", {"x": "1", "y": "2"}, "first")
    assert one == MetricName.of("a", "g", {"y": "2", "x": "1"}, "second")
    assert one != MetricName.of("a", "g", {"x": "1"})


def test_an_unknown_recording_level_names_the_levels():
    with pytest.raises(ConfigError, match=r"LOUD.*(?s:.)*INFO, DEBUG, TRACE"):
        RecordingLevel.of("LOUD")
