"""Whether the brokers answer: at the addresses of ``bootstrap.servers``, and at those that they advertise."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from penstock.base.check_result import CheckResult
from penstock.log.kafka.failures import error_of, failure
from penstock.log.kafka.wire.connection import BrokerConnection
from penstock.log.kafka.wire.protocol_errors import NO_CONNECTION

if TYPE_CHECKING:
    from penstock.log.kafka.access import ClusterAccess

__all__ = ["Reached", "first_answer", "reach_brokers"]

_HURRY_MS = 10_000
_START = "Check host and port, and that the broker runs. `penstock broker start` starts one on this machine."


@dataclass(frozen=True, slots=True)
class Reached:
    """A broker that answers."""

    node: int
    connection: BrokerConnection


def first_answer(
    servers: Iterable[str], settings: Mapping[str, Any], access: ClusterAccess
) -> tuple[BrokerConnection | None, list[CheckResult]]:
    """Connect to the addresses of ``bootstrap.servers``; return the first connection, and the addresses that failed.

    Args:
        servers: ``host:port`` each.
        settings: The settings of `ClientSettings.kafka_python`.
        access: Explains refusals.
    """
    first: BrokerConnection | None = None
    problems: list[tuple[str, str, str]] = []
    for server in servers:
        host, _, port = server.strip().rpartition(":")
        name = f"broker {server.strip()}"
        if not host or not port.isdecimal():
            problems.append((name, f"{server.strip()!r} is not host:port", "Give bootstrap.servers as host:port."))
            continue
        try:
            connection = _connected(host.strip("[]"), int(port), settings)
        except KafkaException as error:
            problems.append((name, *_explained(error, name, access, _START)))
            continue
        if first is None:
            first = connection
        else:
            connection.close()
    return first, [CheckResult(name, found, ok=first is not None, remedy=remedy) for name, found, remedy in problems]


def reach_brokers(
    brokers: Mapping[int, tuple[str, int]], settings: Mapping[str, Any], access: ClusterAccess
) -> tuple[list[Reached], list[CheckResult]]:
    """Connect to each broker at the address that it advertises.

    Args:
        brokers: Host and port of each, by its number.
        settings: The settings of `ClientSettings.kafka_python`.
        access: Explains refusals.
    """
    answering, results = [], []
    for node, (host, port) in sorted(brokers.items()):
        name = f"broker {node} at {host}:{port}"
        began = time.perf_counter()
        try:
            connection = _connected(host, port, settings)
        except KafkaException as error:
            hint = (
                f"The cluster advertises {host}:{port} for broker {node}: set advertised.listeners of the broker to a "
                "name and a port that this machine reaches, or open the way to it."
            )
            found, remedy = _explained(error, name, access, hint)
            results.append(CheckResult(name, found, ok=False, remedy=remedy))
        else:
            took_ms = 1000 * (time.perf_counter() - began)
            answering.append(Reached(node, connection))
            found = f"answers ({took_ms:.0f} ms to connect); speaks the protocol of Kafka {connection.kafka_version}"
            results.append(CheckResult(name, found, ok=True))
    return answering, results


def _connected(host: str, port: int, settings: Mapping[str, Any]) -> BrokerConnection:
    hurried = {**settings, "request_timeout_ms": min(_HURRY_MS, settings.get("request_timeout_ms", _HURRY_MS))}
    return BrokerConnection(host, port, hurried)


def _explained(error: KafkaException, name: str, access: ClusterAccess, unreachable: str) -> tuple[str, str]:
    """Return what happened, and what to do."""
    inner = error_of(error)
    explained = failure(inner, f"connecting to {name}", access)
    refused = access.explained(inner, "") is not None
    if inner.code() == NO_CONNECTION and not refused and "no connection to" in inner.str():
        return f"does not answer: {inner.str().rpartition(': ')[2]}", unreachable
    return explained.message, explained.hint or unreachable
