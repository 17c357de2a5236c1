"""The pytest plugin: drivers that close themselves.

def test_counts(topology_driver):
    driver = topology_driver(my_topology())
    driver.input_topic("words").pipe("hello")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing.driver import TopologyTestDriver
    from penstock.topology.topology import Topology

__all__ = ["topology_driver", "topology_driver_in_batches"]


@pytest.fixture
def topology_driver() -> Iterator[Callable[..., TopologyTestDriver]]:
    """Makes drivers: ``topology_driver(topology, config=None, ...)`` takes what TopologyTestDriver takes."""
    from penstock.testing.driver import TopologyTestDriver

    drivers: list[TopologyTestDriver] = []

    def make(topology: Topology, *args: Any, **options: Any) -> TopologyTestDriver:
        drivers.append(TopologyTestDriver(topology, *args, **options))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()


@pytest.fixture(params=[1, 7], ids=["one-by-one", "batches-of-7"])
def topology_driver_in_batches(
    request: pytest.FixtureRequest, topology_driver: Callable[..., TopologyTestDriver]
) -> Callable[..., TopologyTestDriver]:
    """The same, so that a test runs twice: record by record, and in batches (read outputs after ``flush()``)."""

    def make(topology: Topology, *args: Any, **options: Any) -> TopologyTestDriver:
        return topology_driver(topology, *args, batch_size=request.param, **options)

    return make
