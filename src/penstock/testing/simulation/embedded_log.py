"""The embedded log in a simulation: the production code over a database in memory, in place of the model of brokers.

Its operations happen at once, as each is one transaction of SQLite; before and after each one a process may end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from penstock.errors import LogError
from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.log.embedded.log import EmbeddedLog, drop_memory_log, open_embedded
from penstock.testing.simulation.connection import CommitObserver, Network

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.log.base import Fetched
    from penstock.log.embedded.log import EmbeddedCommitProducer
    from penstock.log.embedded.records import EmbeddedFetcher
    from penstock.log.embedded.streams_groups import EmbeddedStreamsCoordinator
    from penstock.log.streams_groups.description import HeartbeatAnswer, StreamsGroupDescription, StreamsHeartbeat
    from penstock.log.thread_clients import Part, Writer

__all__ = ["EmbeddedBrokers", "EmbeddedConnection", "HeartbeatsOverNetwork"]

_TTL_MS = 1_000_000
_AT_ONCE = frozenset({"identity", "topic", "topics", "partitions", "topic_ids"})  # which no effect follows from


class EmbeddedBrokers:
    """An embedded log as a run sees it, see `penstock.testing.simulation.brokers.Brokers`.

    Args:
        application: The application.
        name: The name of the log in memory.
    """

    def __init__(self, application: str, name: str) -> None:
        self._application, self._name = application, name
        self._version = -1
        self._committed: Mapping[TopicPartition, OffsetAndMetadata] = {}
        self.log: EmbeddedLog = open_embedded(f"memory://{name}")
        self.log.clean_sometimes = lambda *_: None  # type: ignore[method-assign] # in a thread of its own

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic."""
        self.log.create_topic(name, partitions, config)

    def places(self, topic: str) -> list[TopicPartition]:
        """List the partitions of a topic."""
        return [TopicPartition(topic, number) for number in range(self.log.partitions(topic))]

    def append(self, tp: TopicPartition, records: pa.RecordBatch) -> int:
        """Write records outside of transactions."""
        return self.log.append(tp.topic, tp.partition, records)

    def end_of(self, tp: TopicPartition) -> int:
        """Return the end of a partition."""
        return self.log.end_offset(tp.topic, tp.partition)

    def read(self, tp: TopicPartition, start: int, end: int) -> Sequence[pa.RecordBatch]:
        """Return the records with start <= offset < end."""
        return self.log.read_range(tp.topic, tp.partition, start, min(end, self.end_of(tp)))

    @property
    def committed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The offsets that the group has committed."""
        if (version := self.log.version()) != self._version:
            self._version, self._committed = version, self.log.group_offsets(self._application)
        return self._committed

    def is_settled(self, places: Iterable[TopicPartition]) -> bool:  # noqa: ARG002
        """Return True: readers see a commit at once."""
        return True

    def newest_offset(self, tp: TopicPartition) -> int:
        """Return the offset that the group has committed; -1: none."""
        offsets = self.committed
        return offsets[tp].offset if tp in offsets else -1

    def take_lease(self) -> int:
        """Take the application's lease; return its epoch."""
        return self.log.acquire_lease(self._application, "driver", _TTL_MS, force=True).epoch

    def compact(self, slack_s: float) -> None:
        """Do nothing: only the model of brokers compacts topics."""

    def forget(self, known: Mapping[TopicPartition, int]) -> list[TopicPartition]:  # noqa: ARG002
        """Return nothing: an embedded log loses no offsets."""
        return []

    def content(self) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """Yield all records by partition."""
        for topic in self.log.topics():
            for tp in self.places(topic.name):
                for records in self.read(tp, self.log.beginning_offset(tp.topic, tp.partition), 1 << 62):
                    yield tp, records

    def close(self) -> None:
        """Delete the log."""
        with suppress(LogError):
            drop_memory_log(self._name)


class EmbeddedConnection:
    """An embedded log whose operations are points of the simulation.

    Args:
        brokers: The log.
        network: Where its operations are points.
        on_commit: Called with each commit that has taken effect.
    """

    url = "simulated"

    def __init__(self, brokers: EmbeddedBrokers, network: Network, on_commit: CommitObserver) -> None:
        self.brokers = brokers
        self.network = network
        self.on_commit = on_commit

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.brokers.log, name)
        if name in _AT_ONCE:
            return method
        return lambda *args, **options: self.network.request(name, lambda: method(*args, **options))

    def iterate(self, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        log = self.brokers.log
        yield from self.network.request("read", lambda: log.read_range(topic, partition, start, end))

    def fetcher(self, application: str = "") -> _Fetcher:
        return _Fetcher(self.brokers.log.fetcher(application), self.network)

    def commit_producer(self, writer: Writer) -> _Producer:
        log = self.brokers.log
        producer = self.network.request(f"new producer {writer.thread}", lambda: log.commit_producer(writer))
        return _Producer(self, producer, writer)

    def close(self) -> None:
        """Do nothing: other processes use it."""


class HeartbeatsOverNetwork:
    """The coordinator of groups, whose heartbeats are points and may be lost, see `StreamsCoordinator`.

    Args:
        coordinator: The coordinator.
        network: The way to it.
    """

    def __init__(self, coordinator: EmbeddedStreamsCoordinator, network: Network) -> None:
        self._coordinator, self._network = coordinator, network

    def heartbeat(self, heartbeat: StreamsHeartbeat) -> HeartbeatAnswer:
        return self._network.request("heartbeat", lambda: self._coordinator.heartbeat(heartbeat))

    def describe(self, group: str) -> StreamsGroupDescription | None:
        return self._network.request("describe the group", lambda: self._coordinator.describe(group))


class _Fetcher:
    """A fetcher in a simulated process, see `penstock.log.thread_clients.Fetcher`."""

    def __init__(self, fetcher: EmbeddedFetcher, network: Network) -> None:
        self._fetcher, self._scheduler = fetcher, network.scheduler

    def poll(self, timeout_s: float) -> dict[TopicPartition, Fetched]:
        deadline = self._scheduler.now_s + timeout_s
        while True:
            self._scheduler.point("fetch")
            if (fetched := self._fetcher.poll(0.0)) or (left := deadline - self._scheduler.now_s) <= 0:
                return fetched
            self._scheduler.wait(min(left, _LOOK_S))

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._fetcher.assign({tp: positions[tp] for tp in sorted(positions)})

    def pause(self, places: Iterable[TopicPartition]) -> None:
        self._fetcher.pause(places)

    def resume(self, places: Iterable[TopicPartition]) -> None:
        self._fetcher.resume(places)

    def ends(self) -> Mapping[TopicPartition, int]:
        return self._fetcher.ends()

    def close(self) -> None:
        self._fetcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


_LOOK_S = 0.06  # between two looks for records


class _Producer:
    """A producer in a simulated process, see `penstock.log.thread_clients.CommitProducer`."""

    def __init__(self, log: EmbeddedConnection, producer: EmbeddedCommitProducer, writer: Writer) -> None:
        self._log, self._producer, self._writer = log, producer, writer

    @property
    def pending_bytes(self) -> int:
        return self._producer.pending_bytes

    @property
    def firsts(self) -> Mapping[TopicPartition, int]:
        return self._producer.firsts

    def send(self, parts: Sequence[Part]) -> None:
        self._producer.send(parts)

    def collect(self, parts: Sequence[Part]) -> int:
        return self._producer.collect(parts)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Mapping[TopicPartition, int]:
        brokers, network = self._log.brokers, self._log.network

        def effect() -> Mapping[TopicPartition, int]:
            before = brokers.committed
            following = self._producer.commit(offsets)
            self._log.on_commit(self._writer, offsets, {tp: each.offset for tp, each in before.items()})
            return following

        if not offsets and not self._producer.collected():
            return {}
        return network.request("commit", effect)

    def collected(self) -> Sequence[Part]:
        return self._producer.collected()

    def replace(self, parts: Sequence[Part]) -> None:
        self._producer.replace(parts)

    def close(self) -> None:
        self._producer.close()
