"""The log as a process sees it: over a network that is away, or loses an answer after the request has taken effect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Self, TypeVar

import pyarrow as pa

from penstock.errors import LogUnavailableError
from penstock.log.base import RECORD_SCHEMA, Fetched, OffsetAndMetadata, TopicInfo, TopicPartition
from penstock.log.stored_batches import joined, record_bytes
from penstock.log.thread_clients import Part, Writer
from penstock.testing.simulation.brokers import Brokers
from penstock.testing.simulation.scheduler import Actor, Scheduler

__all__ = ["CommitObserver", "Network", "SimulatedConnection"]

T = TypeVar("T")
CommitObserver = Callable[[Writer, Mapping[TopicPartition, OffsetAndMetadata], Mapping[TopicPartition, int]], None]
"""Called with each commit: of whom, of which offsets, and those before."""
_LATE_MARKS = 0.5  # the share of commits whose marks come later than the answer
_LATEST_MARK_S = 0.4
_PIECES = 0.5  # the share of fetches that return only some of what is there
_NOTHING = pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA)


class Network:
    """The way of requests to the brokers and of their answers.

    Args:
        scheduler: The scheduler.

    Attributes:
        failing: What becomes of an actor's present request: "lost", "unanswered" or "late", and for how many seconds.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.failing: dict[Actor, tuple[str, float]] = {}

    def request(self, what: str, effect: Callable[[], T]) -> T:
        """Send a request, and wait for its answer.

        Raises:
            LogUnavailableError: The request, or its answer, was lost.
        """
        scheduler, actor = self.scheduler, self.scheduler.current
        scheduler.point(what)
        if actor is None:
            return effect()
        kind, seconds = self.failing.pop(actor, ("", 0.0))
        if kind == "lost":
            raise _away(what)
        answer = effect()
        scheduler.point(f"after {what}")
        if kind == "late":
            scheduler.wait(seconds)
        if kind == "unanswered":
            raise _away(what)
        return answer


def _away(what: str) -> LogUnavailableError:
    return LogUnavailableError(f"no broker answers ({what})", hint="The simulated network was cut.")


class SimulatedConnection:
    """A topic log with the clients of stream threads: `ThreadLog`, as far as stream threads use it.

    Args:
        brokers: The brokers.
        network: The way to them.
        on_commit: Called with each commit before it takes effect.
    """

    url = "simulated"

    def __init__(self, brokers: Brokers, network: Network, on_commit: CommitObserver) -> None:
        self.brokers = brokers
        self.network = network
        self.on_commit = on_commit
        self._scheduler = network.scheduler

    def identity(self) -> str:
        return "simulated"

    def topics(self) -> list[TopicInfo]:
        return self.brokers.topics()

    def topic(self, name: str) -> TopicInfo:
        return self.brokers.topic(name)

    def partitions(self, topic: str) -> int:
        return self.brokers.topic(topic).partitions

    def topic_ids(self, names: Iterable[str]) -> Mapping[str, str]:
        return {name: f"id of {name}" for name in names if any(each.name == name for each in self.brokers.topics())}

    def purge(self, before: Mapping[TopicPartition, int]) -> None:
        def effect() -> None:
            for tp, offset in sorted(before.items()):
                self.brokers.purge(tp, offset)
                self._scheduler.tell(f"purged {tp.topic}-{tp.partition} before {offset}")

        self.network.request("purge", effect)

    def read_range(self, topic: str, partition: int, start: int, end: int) -> Sequence[pa.RecordBatch]:
        tp = TopicPartition(topic, partition)
        return self.network.request(f"read {topic}-{partition}", lambda: self.brokers.read(tp, start, end))

    def iterate(self, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        yield from self.read_range(topic, partition, start, end)

    def beginning_offset(self, topic: str, partition: int) -> int:
        return self.network.request("first offset", lambda: self.brokers.start_of(TopicPartition(topic, partition)))

    def end_offset(self, topic: str, partition: int) -> int:
        return self.network.request("end", lambda: self.brokers.end_of(TopicPartition(topic, partition)))

    def beginning_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        places = [tp for topic in topics for tp in self.brokers.places(topic)]
        return self.network.request("first offsets", lambda: {tp: self.brokers.start_of(tp) for tp in places})

    def end_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        places = [tp for topic in topics for tp in self.brokers.places(topic)]
        return self.network.request("ends", lambda: {tp: self.brokers.end_of(tp) for tp in places})

    def settled_ends(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        partitions = list(places)
        return self.network.request("settled ends", lambda: self._settled(partitions))

    def _settled(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        while places and (at_s := self.brokers.marks_at_s(places)) is not None:
            self._scheduler.wait(at_s - self._scheduler.now_s)
        return {tp: self.brokers.end_of(tp) for tp in places}

    def group_offsets(
        self,
        group: str,  # noqa: ARG002 - there is one
        places: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        partitions = None if places is None else list(places)
        return self.network.request("offsets of the group", lambda: self._group_offsets(partitions))

    def _group_offsets(self, places: Sequence[TopicPartition] | None) -> dict[TopicPartition, OffsetAndMetadata]:
        while (at_s := self.brokers.shows_at_s(places)) is not None:
            self._scheduler.wait(at_s - self._scheduler.now_s)
        committed = self.brokers.committed
        return {tp: committed[tp] for tp in (committed if places is None else places) if tp in committed}

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        return {tp: each.offset for tp, each in self.group_offsets(group).items()}

    def fetcher(self, application: str = "") -> SimulatedFetcher:  # noqa: ARG002 - there is one
        return SimulatedFetcher(self)

    def commit_producer(self, writer: Writer) -> SimulatedProducer:
        return SimulatedProducer(self, writer)

    def fence_threads(self, application: str, threads: Iterable[str], epoch: int | None = None) -> None:
        names = list(threads)

        def effect() -> None:
            self.brokers.require_lease(epoch)
            for name in names:
                self.brokers.new_producer(f"{application}-{name}")
                self._scheduler.tell(f"fenced {name}")
            for name in names:
                self.await_marks(f"{application}-{name}")

        self.network.request(f"fence {', '.join(names)}", effect)

    def await_marks(self, identity: str) -> None:
        """Wait until the marks of a producer's last transaction are written."""
        while (at_s := self.brokers.producer_marks_at_s(identity)) is not None:
            self._scheduler.wait(at_s - self._scheduler.now_s)

    def close(self) -> None:
        """Do nothing."""


class SimulatedFetcher:
    """A fetcher of simulated brokers, see `penstock.log.thread_clients.Fetcher`.

    Args:
        log: The log.
    """

    def __init__(self, log: SimulatedConnection) -> None:
        self._log = log
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}
        self._seen = -1  # the version of the brokers at which there was nothing new

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._positions = {tp: positions[tp] for tp in sorted(positions)}
        self._ends = {tp: end for tp, end in self._ends.items() if tp in positions}
        self._paused &= positions.keys()

    def pause(self, places: Iterable[TopicPartition]) -> None:
        self._paused.update(self._positions.keys() & set(places))

    def resume(self, places: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(places)

    def poll(self, timeout_s: float) -> dict[TopicPartition, Fetched]:
        scheduler = self._log.network.scheduler
        deadline = scheduler.now_s + timeout_s
        while True:
            scheduler.point("fetch")
            fetched = self._fetch()
            if fetched or scheduler.now_s >= deadline:
                return fetched
            mark_s = self._log.brokers.next_mark_s()
            self._seen = -1
            until_s = deadline if mark_s is None else min(deadline, max(mark_s, scheduler.now_s + 1e-4))
            scheduler.wait(until_s - scheduler.now_s, self._has_news)

    def _has_news(self) -> bool:
        brokers = self._log.brokers
        brokers.mark()
        if brokers.version == self._seen:
            return False
        if any(at < brokers.end_of(tp) for tp, at in self._positions.items() if tp not in self._paused):
            return True
        self._seen = brokers.version
        return False

    def _fetch(self) -> dict[TopicPartition, Fetched]:
        brokers, dice = self._log.brokers, self._log.network.scheduler.dice
        fetched: dict[TopicPartition, Fetched] = {}
        for tp, at in self._positions.items():
            brokers.require(tp, at)
            end = self._ends[tp] = brokers.end_of(tp)
            if at >= end or tp in self._paused:
                continue
            following = end
            if dice.random() < _PIECES:
                following = min(end, at + dice.randint(1, 8))
            batches = brokers.read(tp, at, following)
            records = pa.concat_batches(batches) if batches else _NOTHING
            fetched[tp] = Fetched(records, following)
            self._positions[tp] = following
        return fetched

    def ends(self) -> Mapping[TopicPartition, int]:
        return self._ends

    def close(self) -> None:
        self.assign({})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class SimulatedProducer:
    """A producer of simulated brokers, see `penstock.log.thread_clients.CommitProducer`; exactly once only.

    Args:
        log: The log.
        writer: The identity of the producer.
    """

    def __init__(self, log: SimulatedConnection, writer: Writer) -> None:
        self._log = log
        self._writer = writer
        self._id = writer.transactional_id
        self._parts: list[Part] = []
        self._following: dict[TopicPartition, int] = {}
        self._is_broken = False
        self.firsts: Mapping[TopicPartition, int] = {}

        def effect() -> int:
            log.brokers.require_lease(writer.epoch)
            epoch = log.brokers.new_producer(self._id)
            log.await_marks(self._id)
            return epoch

        self._epoch = log.network.request(f"new producer {self._id}", effect)

    @property
    def pending_bytes(self) -> int:
        return sum(record_bytes(records) for _, _, records in self._parts)

    def send(self, parts: Sequence[Part]) -> None:
        self.collect(parts)

    def collect(self, parts: Sequence[Part]) -> int:
        self._parts.extend(parts)
        return len(parts)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Mapping[TopicPartition, int]:
        network, brokers = self._log.network, self._log.brokers
        if self._is_broken:
            raise _away("a producer after an error")
        if not self._parts and not offsets:
            return {}
        self._is_broken = True
        self._writer.membership()
        self._log.await_marks(self._id)
        if self._parts:
            network.request("write", self._write)
        dice = network.scheduler.dice
        marks_after_s = dice.random() * _LATEST_MARK_S if dice.random() < _LATE_MARKS else 0.0

        shows_after_s = marks_after_s * dice.random()

        def effect() -> None:
            self._require()
            self._log.on_commit(self._writer, offsets, {tp: brokers.newest_offset(tp) for tp in offsets})
            brokers.commit(self._id, offsets, shows_after_s, marks_after_s)

        network.request("commit", effect)
        following, self._following = self._following, {}
        self.replace(())
        self._is_broken = False
        return following

    def _write(self) -> None:
        self._require()
        for tp, records in joined(self._parts):
            assert isinstance(records, pa.RecordBatch)  # noqa: S101 - threads send columns
            first = self._log.brokers.write(self._id, tp, records)
            self._following[tp] = first + records.num_rows

    def _require(self) -> None:
        self._log.brokers.require_producer(self._id, self._epoch)
        self._log.brokers.require_lease(self._writer.epoch)

    def collected(self) -> Sequence[Part]:
        return tuple(self._parts)

    def replace(self, parts: Sequence[Part]) -> None:
        self._parts = list(parts)

    def close(self) -> None:
        self.replace(())
