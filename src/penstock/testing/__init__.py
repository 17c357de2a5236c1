"""Testing a topology without Spark and without a broker: Kafka's TopologyTestDriver and its topics."""

from __future__ import annotations

from penstock.testing.driver import TopologyTestDriver
from penstock.testing.topics import TestInputTopic, TestOutputTopic, TestRecord

__all__ = ["TestInputTopic", "TestOutputTopic", "TestRecord", "TopologyTestDriver"]
