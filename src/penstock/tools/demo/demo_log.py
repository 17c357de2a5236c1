"""The log of the demo's topics: a file, a broker that is started and stopped, or a running one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

__all__ = ["TopicPlace", "embedded", "own_broker", "running_broker"]


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """The log and its settings.

    Attributes:
        bootstrap_servers: The log's URL.
        shown: Its description.
        settings: Settings of Kafka's clients.
    """

    bootstrap_servers: str
    shown: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


def embedded(home: Path) -> TopicPlace:
    """Use a file in the demo's folder."""
    return TopicPlace(f"sqlite:///{home / 'topics.db'}", str(home / "topics.db"))


def running_broker(servers: str, settings: Mapping[str, str]) -> TopicPlace:
    """Use a running Kafka."""
    return TopicPlace(servers, f"Kafka at {servers}", settings)


@contextmanager
def own_broker(directory: Path) -> Iterator[TopicPlace]:
    """Start a broker like ``penstock broker start``, and stop it at the end; its data stays for the next run."""
    from penstock.tools.broker.broker_settings import BrokerSettings, free_port, is_taken, load_settings
    from penstock.tools.broker.process import Broker

    settings = load_settings(directory) or BrokerSettings(directory, free_port(), free_port())
    broker = Broker(settings)
    with ExitStack() as stack:
        if broker.status().pid is not None:  # one that another run has left behind is taken over
            stack.callback(broker.stop)
        else:
            if any(map(is_taken, settings.ports)):
                settings = replace(settings, port=free_port(), controller_port=free_port())
                broker = Broker(settings)
            stack.enter_context(broker)
        yield TopicPlace(settings.bootstrap_servers, f"Kafka at {settings.bootstrap_servers}, data in {directory}")
