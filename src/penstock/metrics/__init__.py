"""Metrics under Kafka's names: `KafkaStreams.metrics`, the test driver's `metrics`, and what exports them.

A task counts in a `CountingSensor` (`penstock.runtime.counting`); `TaskMetrics` adds its counts to a `MetricRegistry`,
whose metrics have the groups, names, tags and units of Kafka Streams.
"""

from penstock.metrics.name import Metric, MetricName, RecordingLevel
from penstock.metrics.prometheus import prometheus_text
from penstock.metrics.registry import MetricRegistry

__all__ = ["Metric", "MetricName", "MetricRegistry", "RecordingLevel", "prometheus_text"]
