"""Tables in compacted topics, as Kafka Connect keeps its configs, offsets and states."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.base.log_lines import own_logger
from penstock.connect.data.stored_offsets import note_of
from penstock.errors import ConfigError, FencedError, LogError, UnknownTopicError
from penstock.log import Producer, TopicPartition
from penstock.log.base import TopicLog
from penstock.log.ensure_topic import ensure_topic

__all__ = ["MemoryTable", "Table", "TableChange", "TopicTable"]

_log = own_logger(__name__)


class TableChange(NamedTuple):
    """A record of a table: its key and value as they are stored; a value None deletes."""

    key: bytes
    value: bytes | None
    note: str = ""  # of a header


class Table(Protocol):
    """Records by key: written at the end, read in their order."""

    def put(self, changes: Sequence[TableChange]) -> None:
        """Write records that any worker may write."""
        ...

    def put_as_leader(self, changes: Sequence[TableChange]) -> None:
        """Write all of these records or none, if no other worker has begun to lead."""
        ...

    def lead(self) -> None:
        """Begin to lead: earlier leaders write no more."""
        ...

    @property
    def leading(self) -> bool:
        """Whether `put_as_leader` can write, as far as is known here."""
        ...

    def refresh(self) -> list[TableChange]:
        """Read what was written since the last call, by anybody."""
        ...

    def catch_up(self) -> list[TableChange]:
        """Read what was written since the last call, also what is in transactions that are still open now."""
        ...

    def close(self) -> None: ...


class MemoryTable:
    """A table of a standalone worker, which ends with it."""

    def __init__(self) -> None:
        self._new: list[TableChange] = []
        self._lock = threading.Lock()

    def put(self, changes: Sequence[TableChange]) -> None:
        """Keep records for the next `refresh`."""
        with self._lock:
            self._new += changes

    def put_as_leader(self, changes: Sequence[TableChange]) -> None:
        """Keep records for the next `refresh`: there is no other worker."""
        self.put(changes)

    def lead(self) -> None:
        """Do nothing: there is no other worker."""

    @property
    def leading(self) -> bool:
        """Always: there is no other worker."""
        return True

    def catch_up(self) -> list[TableChange]:
        """Return what was put since the last call."""
        return self.refresh()

    def refresh(self) -> list[TableChange]:
        """Return what was put since the last call."""
        with self._lock:
            changes, self._new = self._new, []
        return changes

    def close(self) -> None:
        """Do nothing."""


class TopicTable:
    """A table in a compacted topic, which is created if there is none.

    Args:
        log: The log.
        topic: The topic.
        partitions: Its partitions, if it is created.
        settings: More settings of the topic, if it is created.
        transactional_id: The writer's id: a newer writer of the same id fences this one.

    Raises:
        ConfigError: The topic is there and is not compacted, so records would be lost.
    """

    def __init__(
        self,
        log: TopicLog,
        topic: str,
        partitions: int,
        *,
        settings: dict[str, str] | None = None,
        transactional_id: str = "",
    ) -> None:
        self.topic = topic
        self._log = log
        self._transactional_id = transactional_id
        self._leading: Producer | None = None
        self._plain: Producer | None = None
        self._lock = threading.RLock()
        is_new = ensure_compacted(log, topic, partitions, settings or {})
        self._positions = {} if is_new else dict(log.beginning_offsets([topic]))

    def warm_up(self) -> None:
        """Make the writer before it is needed: Kafka's needs half a second until it can write."""
        with self._lock:
            self._plain = self._plain or Producer(self._log, linger_ms=0)

    def put(self, changes: Sequence[TableChange]) -> None:
        """Write records that any worker may write.

        Raises:
            LogUnavailableError: The log cannot be reached.
        """
        if not changes:
            return
        with self._lock:
            self.warm_up()
            assert self._plain is not None  # noqa: S101 - made just now
            for change in changes:
                self._plain.send(self.topic, change.value, key=change.key)
            self._plain.flush()

    def put_as_leader(self, changes: Sequence[TableChange]) -> None:
        """Write all of these records or none, if no other worker has begun to lead.

        Raises:
            FencedError: Another worker leads.
        """
        with self._lock:
            if self._leading is None:
                raise FencedError(f"this worker does not lead, so it cannot write to {self.topic}")
            try:
                with self._leading.transaction():
                    for change in changes:
                        self._leading.send(self.topic, change.value, key=change.key)
            except BaseException:
                self._end_leading()
                raise

    def lead(self) -> None:
        """Begin to lead: the writers of earlier leaders are fenced.

        Raises:
            LogUnavailableError: The log cannot be reached.
        """
        with self._lock:
            self._end_leading()
            self._leading = Producer(self._log, transactional_id=self._transactional_id, linger_ms=0)

    @property
    def leading(self) -> bool:
        """Whether `lead` was called, and no write has failed since."""
        return self._leading is not None

    def refresh(self) -> list[TableChange]:
        """Read what was written since the last call, in the order of each partition."""
        with self._lock:
            return self._read_all(self._log.end_offsets([self.topic]))

    def catch_up(self) -> list[TableChange]:
        """Read what was written since the last call; transactions that are open now are waited for.

        Kafka shows nothing behind the first open transaction of a partition: without the wait, what this process or an
        earlier one has committed can be missing.

        Raises:
            LogUnavailableError: A transaction stays open.
        """
        with self._lock:
            places = [TopicPartition(self.topic, number) for number in range(self._log.partitions(self.topic))]
            return self._read_all(self._log.settled_ends(places))

    def _read_all(self, ends: Mapping[TopicPartition, int]) -> list[TableChange]:
        """Read all partitions to these ends; if one fails, the next call reads all of them again from here."""
        all_changes: list[TableChange] = []
        reached: dict[TopicPartition, int] = {}
        for tp, end in sorted(ends.items()):
            changes, reached[tp] = self._read(tp, end)
            all_changes += changes
        self._positions |= reached
        return all_changes

    def close(self) -> None:
        """Close the writers."""
        with self._lock:
            self._end_leading()
            plain, self._plain = self._plain, None
            if plain is not None:
                try:
                    plain.close()
                except LogError as error:
                    _log.warning("the last records for %s are not written: %s", self.topic, error.message)

    def _end_leading(self) -> None:
        producer, self._leading = self._leading, None
        if producer is not None:
            producer.close()

    def _read(self, tp: TopicPartition, end: int) -> tuple[list[TableChange], int]:
        """Return the records of a partition up to an offset, and the offset after what was read."""
        position = self._positions.get(tp, 0)
        changes: list[TableChange] = []
        while position < end:
            fetched = self._log.read(self.topic, tp.partition, position)
            names = ("key", "value", "headers")
            rows = zip(*(fetched.records.column(name).to_pylist() for name in names), strict=True)
            changes += [TableChange(key, value, note_of(headers)) for key, value, headers in rows if key is not None]
            if fetched.next_offset <= position:
                break
            position = fetched.next_offset
        return changes, position


def ensure_compacted(log: TopicLog, topic: str, partitions: int, settings: dict[str, str]) -> bool:
    """Create a compacted topic, or check the one that is there; return whether it was missing.

    Raises:
        ConfigError: It is not compacted.
    """
    try:
        existing = log.topic(topic)
    except UnknownTopicError:
        ensure_topic(log, topic, partitions, {**settings, "cleanup.policy": "compact"})
        return True
    policy = existing.config.get("cleanup.policy", "delete")
    if policy != "compact":
        raise ConfigError(
            f"Topic '{topic}' is required to have 'cleanup.policy=compact' to guarantee consistency and durability of "
            f"what Connect stores in it, but it has 'cleanup.policy={policy}'.",
            hint=f"Change it: penstock topics alter {topic} --config cleanup.policy=compact",
        )
    return False
