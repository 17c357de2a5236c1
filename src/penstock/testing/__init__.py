"""Tests of topologies without Spark and without a broker: Kafka's TopologyTestDriver and its topics."""

from __future__ import annotations

from penstock.testing.driver import TopologyTestDriver
from penstock.testing.driver_topics import TestInputTopic, TestOutputTopic, TestRecord
from penstock.testing.registry import EmbeddedRegistry
from penstock.testing.try_out import try_out

__all__ = ["EmbeddedRegistry", "TestInputTopic", "TestOutputTopic", "TestRecord", "TopologyTestDriver", "try_out"]
