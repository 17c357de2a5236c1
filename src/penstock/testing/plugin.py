"""The pytest plugin: fixtures of drivers that are closed at the end of a test.

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
    """Return a function that makes drivers; it takes the arguments of TopologyTestDriver."""
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
    """Return a function that makes drivers, and run the test record by record and in batches.

    Call ``flush()`` before reading outputs.
    """

    def make(topology: Topology, *args: Any, **options: Any) -> TopologyTestDriver:
        return topology_driver(topology, *args, batch_size=request.param, **options)

    return make
