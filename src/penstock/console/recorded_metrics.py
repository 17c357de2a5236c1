"""Metrics of an application as its checkpoint has them: of one that serves no HTTP, or does not run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.console.app_view import UNKNOWN, BatchLine
from penstock.metrics import MetricName, MetricRegistry, RecordingLevel, snapshot
from penstock.metrics.definitions import OWN

__all__ = ["recorded_metrics"]

_SUMS = {
    "batches": ("batches-total", "Micro-batches that did something, or looks at stream threads that did."),
    "records_in": ("records-in-total", "Records read from source topics."),
    "records_out": ("records-out-total", "Records written to sink topics."),
    "dropped": ("dropped-records-total", "Records that were dropped."),
}
_OF_NODES = ("node-rows-in-total", "node-rows-out-total", "node-seconds-total")


def recorded_metrics(document: Mapping[str, Any], matching: str = "") -> dict[str, Any]:
    """Return the metrics in what an application has recorded, in the form of `KafkaStreams.exported_metrics`.

    Args:
        document: What the application has recorded, see `penstock.console.recorder`.
        matching: A regular expression that ``<group>:<name>`` must contain; empty: all.

    Raises:
        ConfigError: The expression is not a regular expression.

    >>> found = recorded_metrics({"state": "RUNNING", "sums": {"batches": 3}, "behind": {"lag": {"in-0": 7}}})
    >>> [(one["name"], one["value"]) for one in found["metrics"]]
    [('batches-total', 3), ('lag-records', 7)]
    """
    registry = MetricRegistry(RecordingLevel.INFO, clock=lambda: 0)
    for name, tags, description, value in _values(document):
        registry.gauge(MetricName.of(name, OWN, tags, description), lambda value=value: value)  # type: ignore[misc]
    lines = [BatchLine.of_row(row) for row in document.get("lines", ())]
    return {
        "state": document.get("state", "NOT_RUNNING"),
        "as_of_ms": document.get("written_ms"),
        "metrics": snapshot(registry, matching),
        "batch": _batch(lines[-1], document) if lines else None,
        "partitions": _partitions(document),
    }


def _values(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str], str, float]]:
    sums: Mapping[str, int] = document.get("sums", {})
    for name, (metric, description) in _SUMS.items():
        if name in sums:
            yield metric, {}, f"{description} Since the start.", sums[name]
    yield from _lags(document)
    for node, amounts in document.get("nodes", {}).items():
        for name, value in zip(_OF_NODES, amounts, strict=False):
            yield name, {"processor-node-id": node}, "Of the node, over all tasks, since the start.", value
    for store, rows in document.get("stores", {}).items():
        for task, number in rows.items():
            yield "store-rows", {"task-id": task, "store": store}, "Rows of the store before the newest batch.", number
    for node, reason, count, *_ in document.get("reasons", ()):
        tags = {"processor-node-id": node, "reason": reason}
        yield "dropped-records-total", tags, "Records that were dropped for this reason.", count
    for at, offset in document.get("positions", {}).items():
        yield "position", _place(at), "The offset of the next record to read.", offset


def _lags(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str], str, float]]:
    behind = document.get("behind", {})
    for at, records in behind.get("lag", {}).items():
        yield "lag-records", _place(at), "Records of the partition that wait.", records
    for at, seconds in behind.get("seconds", {}).items():
        yield "lag-seconds", _place(at), "The age of the first record that waits, by its timestamp.", seconds


def _partitions(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    partitions: dict[tuple[str, str], dict[str, Any]] = {}
    for name, tags, _, value in _lags(document):
        at = tags["topic"], tags["partition"]
        partitions.setdefault(at, {"topic": at[0], "partition": int(at[1])})[name.removeprefix("lag-")] = value
    return list(partitions.values())


def _place(at: str) -> dict[str, str]:
    topic, _, partition = at.rpartition("-")
    return {"topic": topic, "partition": partition}


def _batch(line: BatchLine, document: Mapping[str, Any]) -> dict[str, Any]:
    ages = document.get("behind", {}).get("seconds", {}).values()
    lag = {"records": max(line.lag, 0) if line.lag != UNKNOWN else 0, "seconds": max(ages, default=None)}
    steps = {"number": line.number, "ended_ms": line.end_ms, "seconds": line.seconds, "steps": dict(line.steps)}
    counts = {"records_in": line.records_in, "records_out": line.records_out, "dropped": line.dropped}
    return {**steps, **counts, "skew": line.skew, "lag": lag}
