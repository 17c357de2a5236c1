"""Metrics under Kafka's names: `KafkaStreams.metrics`, the test driver's `metrics`, and what exports them.

A task counts in a `CountingSensor` (`penstock.runtime.sensor`); `TaskMetrics` adds its counts to a `MetricRegistry`,
whose metrics have the groups, names, tags and units of Kafka Streams.
"""

from penstock.metrics.batch_records import BatchHistory, BatchRecord
from penstock.metrics.lag import PartitionLag
from penstock.metrics.metric import Metric, MetricName, RecordingLevel
from penstock.metrics.prometheus import prometheus_text
from penstock.metrics.registry import MetricRegistry, snapshot

__all__ = [
    "BatchHistory",
    "BatchRecord",
    "Metric",
    "MetricName",
    "MetricRegistry",
    "PartitionLag",
    "RecordingLevel",
    "prometheus_text",
    "snapshot",
]
