"""A model of brokers: partitions, transactions whose marks come late, fencing, and what a group has committed.

What a commit has decided is final before its partitions show it: the marks that end a transaction there are written a
little later. Until then readers of committed records stop before its first record, and whoever asks for the group's
offsets waits. Marks and aborted records take offsets too, so the offsets of what is read have gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import FencedError, OffsetOutOfRangeError, UnknownTopicError
from penstock.log.base import HEADERS_TYPE, RECORD_SCHEMA, OffsetAndMetadata, TopicInfo, TopicPartition
from penstock.testing.simulation.scheduler import Scheduler

__all__ = ["Brokers", "OpenTransaction"]


@dataclass(eq=False)
class OpenTransaction:
    """A transaction of a producer, from its first record on.

    Attributes:
        producer: The transactional id.
        fate: "open", then "committed" or "aborted", which is final.
        is_marked: Whether its partitions show that.
        places: The partitions that it has written to.
        offsets: The offsets of the group that it commits.
        marks_at_s: When the marks are written to its partitions.
        shows_at_s: When the group's offsets show; not later than that.
    """

    producer: str
    fate: str = "open"
    is_marked: bool = False
    places: dict[TopicPartition, None] = field(default_factory=dict)
    offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    is_shown: bool = False
    marks_at_s: float = 0.0
    shows_at_s: float = 0.0


@dataclass(eq=False)
class _Stored:
    """A record batch, the end of its offsets, the transaction that has written it, and when it was first compacted."""

    first: int
    end: int
    records: pa.RecordBatch
    transaction: OpenTransaction | None
    compacted_s: float | None = None

    def part(self, low: int, high: int) -> pa.RecordBatch:
        """Return its records with low <= offset < high; some may have been removed."""
        if self.records.num_rows == self.end - self.first:
            return self.records.slice(low - self.first, high - low)
        offsets = self.records.column("offset")
        return self.records.filter(pc.and_(pc.greater_equal(offsets, low), pc.less(offsets, high)))


@dataclass(eq=False)
class _Partition:
    start: int = 0
    end: int = 0
    batches: list[_Stored] = field(default_factory=list)

    def stable_end(self) -> int:
        """Return the offset of the first record whose transaction has not ended, see Kafka's last stable offset."""
        waiting = (each.first for each in self.batches if each.transaction and not each.transaction.is_marked)
        return min(waiting, default=self.end)

    def add(self, records: pa.RecordBatch, transaction: OpenTransaction | None) -> int:
        first = self.end
        offsets = pa.array(range(first, first + records.num_rows), pa.int64())
        names, columns = records.schema.names, []
        for each in RECORD_SCHEMA:
            if each.name == "offset":
                columns.append(offsets)
            elif each.name in names:
                columns.append(records.column(each.name).cast(each.type))
            else:
                columns.append(pa.nulls(records.num_rows, HEADERS_TYPE))
        stored = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
        self.end += records.num_rows
        self.batches.append(_Stored(first, self.end, stored, transaction))
        return first

    def committed(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the committed records with start <= offset < end."""
        start = max(start, self.start)
        for each in self.batches:
            if each.end <= start or each.first >= end or (each.transaction and each.transaction.fate != "committed"):
                continue
            if (part := each.part(max(start, each.first), min(end, each.end))).num_rows:
                yield part

    def compact(self, now_s: float, keeps_s: float) -> None:
        """Remove records that newer ones of their keys replace; deletions some time after the first time (KIP-534)."""
        end = self.stable_end()
        settled = [each for each in self.batches if each.end <= end]
        kept = [each for each in settled if not each.transaction or each.transaction.fate == "committed"]
        newest = {key: each for each in kept for key in each.records.column("key").to_pylist()}
        for each in kept:
            each.compacted_s = now_s if each.compacted_s is None else each.compacted_s
            keeps_deletions = now_s - each.compacted_s < keeps_s
            keys, values = each.records.column("key").to_pylist(), each.records.column("value").to_pylist()
            last = {key: row for row, key in enumerate(keys)}
            rows = [
                row
                for row, (key, value) in enumerate(zip(keys, values, strict=True))
                if newest[key] is each and last[key] == row and (value is not None or keeps_deletions)
            ]
            if len(rows) < len(keys):
                each.records = each.records.take(pa.array(rows, pa.int64()))


class Brokers:
    """The state of all brokers. Its methods take effect at once; `SimulatedConnection` calls them over a network.

    Args:
        scheduler: Its clock says when marks are written.

    Attributes:
        lease_epoch: The epoch of the application's newest lease.
        version: Grows with each change that a reader may see.
        committed: The offsets that the group has committed; those of marks to come are missing.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._topics: dict[str, TopicInfo] = {}
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._epochs: dict[str, int] = {}
        self._open: dict[str, OpenTransaction] = {}
        self._unmarked: list[OpenTransaction] = []
        self._earlier: dict[TopicPartition, OffsetAndMetadata] = {}  # the offsets before the newest ones
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.lease_epoch = self.version = 0

    # Topics

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic."""
        self._topics[name] = TopicInfo(name, partitions, dict(config))
        for number in range(partitions):
            self._partitions[TopicPartition(name, number)] = _Partition()

    def topic(self, name: str) -> TopicInfo:
        """Describe a topic."""
        if name not in self._topics:
            raise UnknownTopicError(f"topic {name!r} does not exist", hint="Name it with its partitions.")
        return self._topics[name]

    def topics(self) -> list[TopicInfo]:
        """List all topics."""
        return [self._topics[name] for name in sorted(self._topics)]

    def places(self, topic: str) -> list[TopicPartition]:
        """List the partitions of a topic."""
        return [TopicPartition(topic, number) for number in range(self.topic(topic).partitions)]

    # Records

    def append(self, tp: TopicPartition, records: pa.RecordBatch) -> int:
        """Write records outside of transactions."""
        self.version += 1
        return self._at(tp).add(records, None)

    def start_of(self, tp: TopicPartition) -> int:
        """Return the first offset of a partition."""
        return self._at(tp).start

    def end_of(self, tp: TopicPartition) -> int:
        """Return the end of what readers of committed records see."""
        self.mark()
        return self._at(tp).stable_end()

    def read(self, tp: TopicPartition, start: int, end: int) -> list[pa.RecordBatch]:
        """Return the committed records with start <= offset < end."""
        self.mark()
        partition = self._at(tp)
        return list(partition.committed(start, min(end, partition.stable_end())))

    def require(self, tp: TopicPartition, offset: int) -> None:
        """Raise OffsetOutOfRangeError if the records from an offset on are not there."""
        partition = self._at(tp)
        if not partition.start <= offset <= partition.end:
            raise OffsetOutOfRangeError(
                f"{tp.topic}-{tp.partition} has no offset {offset}, but {partition.start} to {partition.end}",
                hint="Somebody has deleted records that were still to be read.",
                topic=tp.topic, partition=tp.partition, offset=offset,
            )  # fmt: skip

    def purge(self, tp: TopicPartition, before: int) -> None:
        """Delete the records below an offset."""
        partition = self._at(tp)
        partition.start = max(partition.start, min(before, partition.end))

    def compact(self, slack_s: float) -> None:
        """Compact all topics that are; deletions are kept for their time, and a little longer."""
        self.mark()
        for name, topic in sorted(self._topics.items()):
            if "compact" in topic.config.get("cleanup.policy", ""):
                kept_s = int(topic.config["delete.retention.ms"]) / 1000 + slack_s
                for tp in self.places(name):
                    self._at(tp).compact(self._scheduler.now_s, kept_s)

    # Producers

    def new_producer(self, identity: str) -> int:
        """Return the epoch of a new producer, which fences those before; what they have begun is aborted."""
        self._end(self._open.pop(identity, None), "aborted", 0.0)
        self._epochs[identity] = self._epochs.get(identity, -1) + 1
        return self._epochs[identity]

    def require_producer(self, identity: str, epoch: int) -> None:
        """Raise FencedError if there is a newer producer."""
        newest = self._epochs.get(identity, -1)
        if newest != epoch:
            raise FencedError(
                f"producer {identity!r} of epoch {epoch} has been fenced by one of epoch {newest}",
                hint="The thread must end.",
            )

    def take_lease(self) -> int:
        """Take the application's lease; return its epoch."""
        self.lease_epoch += 1
        return self.lease_epoch

    def require_lease(self, epoch: int | None) -> None:
        """Raise FencedError if the lease has a newer epoch."""
        if epoch is not None and epoch < self.lease_epoch:
            raise FencedError(
                f"the lease of epoch {epoch} was taken over by epoch {self.lease_epoch}", hint="The thread must end."
            )

    def write(self, identity: str, tp: TopicPartition, records: pa.RecordBatch) -> int:
        """Write records in the producer's transaction, which begins with the first; return the offset of the first."""
        transaction = self._open.setdefault(identity, OpenTransaction(identity))
        transaction.places[tp] = None
        return self._at(tp).add(records, transaction)

    def commit(
        self,
        identity: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        shows_after_s: float,
        marks_after_s: float,
    ) -> None:
        """Commit the producer's transaction, with these offsets of the group."""
        transaction = self._open.pop(identity, None) or OpenTransaction(identity)
        transaction.offsets = dict(offsets)
        transaction.shows_at_s = self._scheduler.now_s + shows_after_s
        self._end(transaction, "committed", marks_after_s)

    def _end(self, transaction: OpenTransaction | None, fate: str, marks_after_s: float) -> None:
        if transaction is None:
            return
        transaction.fate = fate
        transaction.marks_at_s = self._scheduler.now_s + marks_after_s
        self._unmarked.append(transaction)
        self.mark()

    def mark(self) -> None:
        """Write the marks that are due."""
        if not self._unmarked:
            return
        now = self._scheduler.now_s
        for each in self._unmarked:
            if each.shows_at_s <= now and not each.is_shown:
                each.is_shown = True  # a later commit may show, and be marked, before this one is
                self._show(each.offsets)
                each.offsets = {}  # once: another owner may commit before the marks are written
        for each in [each for each in self._unmarked if each.marks_at_s <= now]:
            self._unmarked.remove(each)
            each.is_marked = True
            self.version += 1
            for tp in each.places:
                self._at(tp).end += 1  # the mark itself

    def _show(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for tp, offset in offsets.items():
            if self.committed.get(tp) != offset:
                if tp in self.committed:
                    self._earlier[tp] = self.committed[tp]
                self.committed[tp] = offset

    def forget(self, known: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Lose the group's newest offsets where they are these, as a new coordinator may; return the partitions."""
        self.mark()
        lost = [
            tp
            for tp, offset in sorted(known.items())
            if tp in self._earlier and tp in self.committed and self.newest_offset(tp) == offset
        ]
        lost = [] if self._unmarked else lost
        for tp in lost:
            self.committed[tp] = self._earlier.pop(tp)
        return lost

    def marks_at_s(self, places: Iterable[TopicPartition]) -> float | None:
        """Return when the last mark of ended transactions in these partitions is written; None: all are."""
        self.mark()
        partitions = set(places)
        return max((each.marks_at_s for each in self._unmarked if partitions & each.places.keys()), default=None)

    def is_settled(self, places: Iterable[TopicPartition]) -> bool:
        """Return whether readers see all that was committed to partitions."""
        return self.marks_at_s(places) is None

    def shows_at_s(self, places: Iterable[TopicPartition] | None = None) -> float | None:
        """Return when the offsets of partitions show that the group has committed; None: they do.

        Without names those with an older offset are meant: as brokers do it, a first offset is missing until it shows.
        """
        self.mark()
        now, partitions = self._scheduler.now_s, set(self.committed if places is None else places)
        unshown = [each for each in self._unmarked if each.shows_at_s > now and partitions & each.offsets.keys()]
        return max((each.shows_at_s for each in unshown), default=None)

    def producer_marks_at_s(self, identity: str) -> float | None:
        """Return when the marks of a producer's last transaction are written, before which it begins no other one."""
        self.mark()
        return max((each.marks_at_s for each in self._unmarked if each.producer == identity), default=None)

    def next_mark_s(self) -> float | None:
        """Return when the next mark is written."""
        return min((each.marks_at_s for each in self._unmarked), default=None)

    def newest_offset(self, tp: TopicPartition) -> int:
        """Return the offset that the group has committed, also if its mark is still to come; -1: none."""
        newest = self.committed[tp].offset if tp in self.committed else -1
        for each in self._unmarked:
            if each.fate == "committed" and tp in each.offsets:
                newest = each.offsets[tp].offset
        return newest

    def close(self) -> None:
        """Do nothing."""

    def content(self) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """Yield all committed records by partition."""
        for tp in sorted(self._partitions):
            for each in self._partitions[tp].committed(0, 1 << 62):
                yield tp, each

    def _at(self, tp: TopicPartition) -> _Partition:
        if tp not in self._partitions:
            self.topic(tp.topic)
        return self._partitions[tp]
