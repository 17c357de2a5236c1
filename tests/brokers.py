"""Brokers for tests: of their own folder, on free ports of the loopback address."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from penstock.base.jars import KAFKA_VERSION
from penstock.tools.broker.broker_settings import BrokerSettings, free_port
from penstock.tools.broker.process import Broker

__all__ = ["running_broker"]


@contextmanager
def running_broker(
    directory: Path,
    users: Mapping[str, str] | None = None,
    *,
    acls: bool = False,
    partitions: int = 1,
    version: str = "",
    more: Mapping[str, str] | None = None,
) -> Iterator[Broker]:
    """A broker that runs until the end of the block.

    Args:
        directory: Where its data goes.
        users: User -> password; with any there are listeners for SASL and mTLS beside the plain one.
        acls: Whether it asks for rights; "admin" and whoever uses the plain listener have all.
        partitions: Of topics that do not say otherwise.
        version: Of Kafka; by default ``TEST_KAFKA_VERSION``, or Penstock's own default.
        more: Further settings by Kafka's names.
    """
    secured = {"sasl_port": free_port(), "tls_port": free_port(), "users": dict(users)} if users else {}
    version = version or os.environ.get("TEST_KAFKA_VERSION", KAFKA_VERSION)
    settings = BrokerSettings(
        directory, free_port(), free_port(), partitions=partitions, acls=acls, version=version,
        more=dict(more or {}), **secured  # type: ignore[arg-type]
    )  # fmt: skip
    with Broker(settings) as running:
        yield running
