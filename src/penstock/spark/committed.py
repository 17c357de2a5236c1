"""Opening an application's committed state from its topology and settings, in whatever process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.log.base import TopicPartition
from penstock.query.committed import CommittedState
from penstock.query.lag import LagWatch
from penstock.spark.global_stores import GlobalStores
from penstock.spark.launch import Places, open_app_log
from penstock.topology.configured_serdes import with_serdes

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.query.lag import Ends
    from penstock.topology.topology import Topology

__all__ = ["lag_of", "open_committed", "query_root"]


def query_root(config: StreamsConfig) -> Path:
    """Where processes that query an application on this machine may keep replicas of their own."""
    return Path(Places.of(config).replicas).with_name("queries")


def open_committed(topology: Topology, config: StreamsConfig, *, refresh_s: float | None = None) -> CommittedState:
    """The committed state of an application, running or not.

    Args:
        topology: Its topology.
        config: Its settings; ``state.dir`` and ``penstock.checkpoint.location`` say where the state is.
        refresh_s: How old the knowledge of the newest commit may be.
    """
    typed = with_serdes(topology, config)
    places = Places.of(config)
    return CommittedState(
        places.checkpoint,
        config["application.id"],
        typed.stores,
        own_root=query_root(config),
        worker_root=places.replicas,
        global_stores=typed.global_stores,
        globals_reader=_GlobalReader(typed, config) if typed.global_stores else None,
        refresh_s=refresh_s,
    )


def lag_of(config: StreamsConfig) -> LagWatch:
    """Knows how many records of the log are behind the committed state."""
    return LagWatch(_LogEnds(config))


class _LogEnds:
    """The ends of topics, by a handle of the log of its own."""

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self._log: Any = None

    def __call__(self, topics: list[str]) -> Ends:
        if self._log is None:
            self._log = open_app_log(self._config)
        found: dict[str, dict[int, int]] = {}
        for tp, end in self._log.end_offsets(topics).items():
            found.setdefault(tp.topic, {})[tp.partition] = end
        return found

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


class _GlobalReader:
    """A copy of the global stores for queries, brought to where a committed batch saw them."""

    def __init__(self, topology: Topology, config: StreamsConfig) -> None:
        self._topology = topology
        self._config = config
        self._lock = threading.Lock()
        self._log: Any = None
        self._stores: GlobalStores | None = None

    @contextmanager
    def reading(self, store: str, ends: Mapping[str, Mapping[int, int]]) -> Iterator[Any]:
        """The typed view of a store; one reading at a time, as all share one copy."""
        with self._lock:
            if self._stores is None:
                self._log = open_app_log(self._config)
                identity = f"queries {self._config['application.id']} {Places.of(self._config).checkpoint}"
                root = str(query_root(self._config))
                self._stores = GlobalStores(self._topology, self._config, self._log, root, identity)
            wanted = self._stores.topics
            flat = {
                TopicPartition(topic, partition): end
                for topic, parts in ends.items()
                if topic in wanted
                for partition, end in parts.items()
            }
            self._stores.move_to(flat)
            yield self._stores.views.view(self._topology.stores[store])

    def close(self) -> None:
        with self._lock:
            if self._stores is not None:
                self._stores.close()
                self._log.close()
                self._stores = self._log = None
