"""Where a soak runs: one broker and a checkpoint on the disk, or a cluster of all that can be one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from penstock.tools.broker.broker_settings import BrokerSettings, free_port
from penstock.tools.broker.process import Broker, BrokerCluster
from soak_store import object_store


@dataclass(frozen=True)
class Place:
    """What the application and its faults are given.

    Attributes:
        bootstrap: Addresses of the brokers.
        brokers: One, or several with replicated topics.
        checkpoint: Address of the checkpoint; empty: below ``state.dir``.
        environment: What drivers and executors have beside the usual.
    """

    bootstrap: str
    brokers: list[Broker]
    checkpoint: str = ""
    environment: dict[str, str] = field(default_factory=dict)


@contextmanager
def alone(folder: Path) -> Iterator[Place]:
    """One broker."""
    with Broker(BrokerSettings(folder / "broker", free_port(), free_port(), partitions=2)) as broker:
        yield Place(broker.settings.bootstrap_servers, [broker])


@contextmanager
def clustered(folder: Path) -> Iterator[Place]:
    """Three brokers, and a bucket."""
    with (
        BrokerCluster(folder / "brokers", partitions=2) as cluster,
        object_store(folder / "store.log") as (bucket, environment),
    ):
        os.environ.update(environment)  # the soak looks into the checkpoint as well
        yield Place(cluster.bootstrap_servers, cluster.brokers, f"{bucket}/app", environment)
