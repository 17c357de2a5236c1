"""Metrics that Kafka Streams' test driver has at the end of recorded cases, and those of ours.

``metrics.json.xz`` holds, by case, the series of `COMPARED` (group, name, tags, value; None: NaN) that Kafka Streams
4.3.1 has with ``metrics.recording.level=TRACE`` after the inputs of the case.
"""

from __future__ import annotations

import json
import lzma
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from interpreter import interpret
from run import feed

ARCHIVE = Path(__file__).with_name("metrics.json.xz")
GROUPS = ("stream-task-metrics", "stream-processor-node-metrics", "stream-topic-metrics")
COMPARED = {
    "bytes-consumed-total",
    "bytes-produced-total",
    "dropped-records-rate",
    "dropped-records-total",
    "process-rate",
    "process-total",
    "punctuate-rate",
    "punctuate-total",
    "record-e2e-latency-avg",
    "record-e2e-latency-max",
    "record-e2e-latency-min",
    "record-lateness-avg",
    "record-lateness-max",
    "records-consumed-total",
    "records-produced-total",
    "suppression-emit-rate",
    "suppression-emit-total",
    "window-aggregate-final-emit-rate",
    "window-aggregate-final-emit-total",
}
Series = dict[tuple[str, str, tuple[tuple[str, str], ...]], float]


def recorded() -> dict[str, Series]:
    """Return the recorded series by case."""
    return {case: series_of(rows) for case, rows in json.loads(lzma.decompress(ARCHIVE.read_bytes())).items()}


def series_of(rows: list[Any]) -> Series:
    """Return rows of (group, name, tags, value) as series."""
    return {
        (group, name, tuple(sorted(tags.items()))): math.nan if value is None else float(value)
        for group, name, tags, value in rows
        if not _is_pattern(tags.get("topic", ""))
    }


def _is_pattern(topic: str) -> bool:
    """Whether a topic is the pattern of a source, which Java's driver takes for its topic; an application does not."""
    return "*" in topic


def metrics_of(case: dict[str, Any]) -> tuple[Series, float]:
    """Run a case through the test driver, record by record.

    Returns:
        The series that are compared, and how many records were dropped without a reason.
    """
    from penstock.testing import TopologyTestDriver

    run = interpret(case)
    driver = TopologyTestDriver(
        run.topology, {"application.id": "app", **run.config, "metrics.recording.level": "TRACE"}
    )
    try:
        for record in case["inputs"]:
            feed(driver, run, record)
        series = {
            (name.group, name.name, name.tags): float(metric.metric_value())
            for name, metric in driver.metrics.items()
            if name.group in GROUPS and name.name in COMPARED
        }
        groups = ("stream-task-metrics", "penstock-metrics")
        dropped, explained = (driver.metrics.total("dropped-records-total", group=group) for group in groups)
        return series, dropped - explained
    finally:
        driver.close()


def differences(expected: Series, found: Series) -> Iterator[str]:
    """Say where two sets of series differ."""
    for series in sorted(expected.keys() | found.keys()):
        theirs, ours = expected.get(series), found.get(series)
        if theirs is None or ours is None:
            yield f"{series} {'is missing' if ours is None else 'is not recorded'}"
        elif not (math.isnan(theirs) and math.isnan(ours)) and not math.isclose(theirs, ours, rel_tol=1e-9):
            yield f"{series} is {ours}, not {theirs}"
