"""The metrics of an application's loop, and of how far each source partition is behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from penstock.metrics.definitions import (
    BLOCKED,
    COMMIT,
    COMMIT_RATIO,
    OWN,
    POLL,
    POLL_RATIO,
    POLLED,
    PROCESS_RATIO,
    PUNCTUATE,
    PUNCTUATE_RATIO,
    RESTORE_CALLS,
    RESTORED,
    TASK_CLOSED,
    TASK_CREATED,
    THREAD_PROCESS_LATENCY,
    THREAD_PROCESSED,
    UPDATER,
)
from penstock.metrics.metric import MeterDefinition, MetricDefinition, MetricName, MetricValue, RecordingLevel

if TYPE_CHECKING:
    from penstock.metrics.batch_records import BatchRecord
    from penstock.metrics.lag import LagWatch, PartitionLag
    from penstock.metrics.registry import Meter, MetricRegistry
    from penstock.metrics.task_counts import Spread

__all__ = ["LagMetrics", "LoopMetrics"]

FETCH = "consumer-fetch-manager-metrics"
_LAG = MeterDefinition(
    FETCH,
    RecordingLevel.INFO,
    (
        MetricDefinition("records-lag-avg", "avg", "The mean lag of the partition in records."),
        MetricDefinition("records-lag-max", "max", "The largest lag of the partition in records."),
    ),
)
_LEAD = MeterDefinition(
    FETCH,
    RecordingLevel.INFO,
    (
        MetricDefinition("records-lead-avg", "avg", "The mean distance of the position from the first offset."),
        MetricDefinition("records-lead-min", "min", "The smallest distance of the position from the first offset."),
    ),
)


class LagMetrics:
    """The metrics of lags in a registry, each with its own looks.

    Args:
        registry: The application's metrics.
        client_id: The ``client-id`` of the consumer.
        watch: The lags.
    """

    def __init__(self, registry: MetricRegistry, client_id: str, watch: LagWatch) -> None:
        self._registry = registry
        self._client = {"client-id": client_id}
        self._watch = watch
        self._meters: dict[str, tuple[Meter | None, Meter | None]] = {}
        self._leads: dict[str, int] = {}
        self._has_lead = False
        total: Callable[[], MetricValue] = lambda: max((lag.records for lag in watch.lags()), default=0)  # noqa: E731
        registry.gauge(
            MetricName.of("records-lag-max", FETCH, self._client, "The most records that wait in a partition."), total
        )

    def look(self, beginnings: Mapping[str, int]) -> None:
        """Add the lags as they are now.

        Args:
            beginnings: ``<topic>-<partition>`` -> the first offset that there is, as far as it is known.
        """
        for lag in self._watch.lags():
            at = f"{lag.topic}-{lag.partition}"
            if at not in self._meters:
                self._add(at, lag)
            behind, ahead = self._meters[at]
            if behind is not None:
                behind.record(lag.records)
            if at in beginnings:
                lead = self._leads[at] = max(0, lag.position - beginnings[at])
                if ahead is not None:
                    ahead.record(lead)
        if self._leads and not self._has_lead:
            self._has_lead = True
            words = "The smallest distance of a position from the first offset there is: how near retention is."
            name = MetricName.of("records-lead-min", FETCH, self._client, words)
            self._registry.gauge(name, lambda: min(self._leads.values()))

    def _add(self, at: str, lag: PartitionLag) -> None:
        partition_tags = {"topic": lag.topic, "partition": str(lag.partition)}
        tags = {**self._client, **partition_tags}
        self._meters[at] = (self._registry.meter(_LAG, tags), self._registry.meter(_LEAD, tags))
        watch = self._watch
        seconds = "The age of the first record that waits, by its timestamp."
        trend = "Records a second by which the lag has grown over the last minute."
        gauges: tuple[tuple[str, str, Mapping[str, str], str, Callable[[], MetricValue]], ...] = (
            ("records-lag", FETCH, tags, "Records of the partition that wait.", lambda: watch.of(at).records),
            ("records-lead", FETCH, tags, "Records between the first and the position.", lambda: self._lead(at)),
            ("lag-records", OWN, partition_tags, "Records of the partition that wait.", lambda: watch.of(at).records),
            ("lag-seconds", OWN, partition_tags, seconds, lambda: _known(watch.of(at).seconds)),
            ("lag-trend", OWN, partition_tags, trend, lambda: watch.of(at).trend),
            ("position", OWN, partition_tags, "The offset of the next record to read.", lambda: watch.of(at).position),
            ("end-offset", OWN, partition_tags, "The offset after the newest record.", lambda: watch.of(at).end),
        )
        for name, group, labels, description, read in gauges:
            self._registry.gauge(MetricName.of(name, group, labels, description), read)

    def _lead(self, at: str) -> MetricValue:
        return self._leads.get(at, float("nan"))


def _known(value: float | None) -> float:
    return float("nan") if value is None else value


_POLLING = ("read", "poll")
_COMMITTING = ("publish", "changelog", "write", "send", "commit", "replicas")
_WAITING = ("read", "poll", "write", "send", "commit")
_MS, _NS = 1e3, 1e9


class LoopMetrics:
    """The metrics of the loop in a registry, fed by batches.

    Args:
        registry: The application's metrics.
        thread_id: The ``thread-id`` of the loop.
    """

    def __init__(self, registry: MetricRegistry, thread_id: str) -> None:
        self._registry = registry
        tags = {"thread-id": thread_id}
        meters = (THREAD_PROCESSED, POLLED, COMMIT, POLL, PUNCTUATE, BLOCKED, TASK_CREATED, TASK_CLOSED)
        (
            self._processed,
            self._polled,
            self._commits,
            self._polls,
            self._punctuations,
            self._blocked,
            self._created,
            self._closed,
        ) = (registry.meter(definition, tags) for definition in meters)
        self._restores, self._restored = (registry.meter(each, tags) for each in (RESTORE_CALLS, RESTORED))
        self._restoring = 0
        words = "Tasks whose replica caught up in the newest batch; in continuous mode, stores that are restored now."
        registry.gauge(MetricName.of("active-restoring-tasks", UPDATER, tags, words), lambda: self._restoring)
        self._latency = registry.meter(THREAD_PROCESS_LATENCY, tags)
        ratios = (POLL_RATIO, PROCESS_RATIO, COMMIT_RATIO, PUNCTUATE_RATIO)
        self._ratios = tuple(registry.meter(definition, tags) for definition in ratios)
        self._client = {"client-id": thread_id.rpartition("-StreamThread-")[0]}
        self._steps: dict[str, float] = {}
        self._newest: BatchRecord | None = None
        self._batches = 0
        self._lost: dict[str, int] = {}

    def record(self, batch: BatchRecord) -> None:
        """Add a batch."""
        if self._newest is None:
            self._add_gauges()
        self._newest = batch
        self._batches += 1
        _one(self._processed, batch.records_in)
        _one(self._polled, batch.records_in)
        if self._latency is not None and batch.records_in:
            mean = batch.steps.get("process", 0.0) * _MS / batch.records_in
            self._latency.record_many(mean * batch.records_in, batch.records_in, mean, mean)
        polling, committing = _longest(batch, _POLLING), _longest(batch, _COMMITTING)
        _one(self._polls, _MS * polling)
        _one(self._commits, _MS * committing)
        _one(self._blocked, _NS * sum(batch.steps.get(step, 0.0) for step in _WAITING))
        for meter, seconds in zip(self._ratios, (polling, _longest(batch, ("process",)), committing), strict=False):
            _one(meter, seconds)
        for step, seconds in batch.slowest.items():
            self._add_step(step, seconds)
        for at, offsets in batch.lost.items():
            self._add_lost(at, offsets)

    def record_punctuations(self, spread: Spread) -> None:
        """Add punctuations by their seconds."""
        if spread.count and self._punctuations is not None:
            low, high = spread.low * _MS, spread.high * _MS
            self._punctuations.record_many(spread.total * _MS, spread.count, low, high)
            _one(self._ratios[-1], spread.total)

    def record_moves(self, opened: int, restored: int) -> None:
        """Add tasks that workers have opened, and catch-ups of replicas."""
        for meter, number in ((self._created, opened), (self._restores, restored)):
            if meter is not None and number:
                meter.record_many(number, number, 1, 1)

    def record_restores(self, restoring: int, rows: int) -> None:
        """Note how many tasks catch up, and add the changes that were applied to replicas."""
        self._restoring = restoring
        if rows:
            _one(self._restored, rows)

    def record_closed(self, tasks: int) -> None:
        """Add tasks that workers have closed."""
        if self._closed is not None and tasks:
            self._closed.record_many(tasks, tasks, 1, 1)

    def _add_step(self, step: str, seconds: float) -> None:
        if step not in self._steps:
            tags = {**self._client, "step": step}
            name = MetricName.of(
                "batch-seconds-total", OWN, tags, "Seconds of the slowest task of each batch in a step."
            )
            self._registry.gauge(name, partial(self._steps.__getitem__, step))
        self._steps[step] = self._steps.get(step, 0.0) + seconds

    def _add_lost(self, at: str, offsets: int) -> None:
        if at not in self._lost:
            topic, _, partition = at.rpartition("-")
            tags = {"topic": topic, "partition": partition}
            name = MetricName.of("lost-records-total", OWN, tags, "Offsets that were removed before they were read.")
            self._registry.gauge(name, partial(self._lost.__getitem__, at))
        self._lost[at] = self._lost.get(at, 0) + offsets

    def _add_gauges(self) -> None:
        gauges = (
            ("batches-total", "Micro-batches, or looks at stream threads, that did something.", self._number),
            ("batch-number", "The number of the newest batch.", lambda: self._of_newest("number")),
            ("batch-duration-seconds", "The seconds of the newest batch.", lambda: self._of_newest("seconds")),
            (
                "batch-skew-ratio",
                "The time of the slowest task of the newest batch over that of the median one.",
                lambda: self._of_newest("skew"),
            ),
        )
        for name, description, read in gauges:
            self._registry.gauge(MetricName.of(name, OWN, self._client, description), read)

    def _number(self) -> MetricValue:
        return self._batches

    def _of_newest(self, attribute: str) -> MetricValue:
        value: MetricValue = getattr(self._newest, attribute)
        return value


def _one(meter: Meter | None, value: float) -> None:
    if meter is not None:
        meter.record(value)


def _longest(batch: BatchRecord, steps: tuple[str, ...]) -> float:
    """Return the seconds of the task that took longest for these steps together."""
    times: list[Mapping[str, float]] = [task["seconds"] for task in batch.tasks]
    return max((sum(each.get(step, 0.0) for step in steps) for each in times), default=0.0)
