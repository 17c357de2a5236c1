"""A cluster of several brokers on one machine, with replicated topics, to test the loss of a broker."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.tools.broker.broker_settings import BrokerSettings, free_port
from penstock.tools.broker.process import Broker, new_cluster_id

__all__ = ["BrokerCluster"]


class BrokerCluster:
    """Brokers that are also controllers; topics have three replicas, of which two must have each record.

    Args:
        directory: The directory of their data, with a folder for each.
        count: The number of brokers; of three, one may be lost.
        partitions: The partitions of topics created on first use.
        heap_mb: The memory of each broker.

    Example:
        >>> cluster = BrokerCluster(Path("data/kafka"))
        >>> [broker.settings.node for broker in cluster.brokers]
        [1, 2, 3]
    """

    def __init__(self, directory: Path, count: int = 3, *, partitions: int = 1, heap_mb: int = 256) -> None:
        ports: set[int] = set()
        while len(ports) < 2 * count:
            ports.add(free_port())
        of_clients, of_controllers = sorted(ports)[:count], tuple(sorted(ports)[count:])
        cluster_id = new_cluster_id()
        self.brokers = [
            Broker(
                BrokerSettings(
                    directory / str(node), port, of_controllers[node - 1],
                    partitions=partitions, heap_mb=heap_mb,
                    node=node, controller_ports=of_controllers, cluster_id=cluster_id,
                )
            )
            for node, port in enumerate(of_clients, 1)
        ]  # fmt: skip
        self._running = ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        """The plain listeners of all brokers."""
        return ",".join(broker.settings.bootstrap_servers for broker in self.brokers)

    def broker(self, node: int) -> Broker:
        """Return the broker of this number."""
        return self.brokers[node - 1]

    def __enter__(self) -> Self:
        with ExitStack() as started, ThreadPoolExecutor(len(self.brokers)) as threads:
            starts = [threads.submit(started.enter_context, broker) for broker in self.brokers]
            for each in starts:  # none is up before a majority is
                each.result()
            self._running = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers:
            broker.stop(kill=True)  # the last ones would wait for a majority that is gone
        self._running.close()
