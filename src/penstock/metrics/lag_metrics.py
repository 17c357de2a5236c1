"""The metrics of how far each source partition is behind, and how near retention is to the position."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.metrics.name import MetricName, MetricValue, RecordingLevel
from penstock.metrics.shapes import MeterDefinition, MetricDefinition
from penstock.metrics.store_definitions import OWN

if TYPE_CHECKING:
    from penstock.metrics.lag import LagWatch, PartitionLag
    from penstock.metrics.registry import Meter, MetricRegistry

__all__ = ["LagMetrics"]

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
    """Adds the metrics of lags to a registry, and looks at them.

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
