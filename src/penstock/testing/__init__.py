"""Tests of topologies without Spark and without a broker: Kafka's TopologyTestDriver and its topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.testing.driver import TopologyTestDriver as TopologyTestDriver
    from penstock.testing.driver_topics import TestInputTopic as TestInputTopic
    from penstock.testing.driver_topics import TestOutputTopic as TestOutputTopic
    from penstock.testing.driver_topics import TestRecord as TestRecord
    from penstock.testing.mock_context import CapturedForward as CapturedForward
    from penstock.testing.mock_context import CapturedPunctuator as CapturedPunctuator
    from penstock.testing.mock_context import MockProcessorContext as MockProcessorContext
    from penstock.testing.registry import EmbeddedRegistry as EmbeddedRegistry
    from penstock.testing.simulation.checking import check_simulated as check_simulated
    from penstock.testing.trial import try_out as try_out

__all__ = [
    "CapturedForward",
    "CapturedPunctuator",
    "EmbeddedRegistry",
    "MockProcessorContext",
    "TestInputTopic",
    "TestOutputTopic",
    "TestRecord",
    "TopologyTestDriver",
    "check_simulated",
    "try_out",
]

# Loaded when first used: pytest imports this package for its plugin at each start, wherever Penstock is installed.
__getattr__ = lazy_names(
    __name__,
    {
        "CapturedForward": "mock_context",
        "CapturedPunctuator": "mock_context",
        "EmbeddedRegistry": "registry",
        "MockProcessorContext": "mock_context",
        "TestInputTopic": "driver_topics",
        "TestOutputTopic": "driver_topics",
        "TestRecord": "driver_topics",
        "TopologyTestDriver": "driver",
        "check_simulated": "simulation.checking",
        "try_out": "trial",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
