"""Records of the mirror's own topics, byte for byte as MirrorMaker's: heartbeats, checkpoints, offset syncs."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from penstock.connect.data import BytesError
from penstock.log.base import TopicPartition

__all__ = ["Checkpoint", "Heartbeat", "OffsetSync"]

VERSION = struct.pack(">h", 0)  # before the values of heartbeats and checkpoints


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life that travels from the source cluster to the target.

    Attributes:
        source: The alias of the source cluster.
        target: The alias of the target cluster.
        timestamp: When it was sent, in milliseconds since 1970.

    Example:
        >>> beat = Heartbeat("west", "east", 1700000000123)
        >>> Heartbeat.read(beat.key(), beat.value()) == beat
        True
    """

    source: str
    target: str
    timestamp: int

    def key(self) -> bytes:
        """Return the record's key: both aliases."""
        return _text(self.source) + _text(self.target)

    def value(self) -> bytes:
        """Return the record's value: the time."""
        return VERSION + struct.pack(">q", self.timestamp)

    def connect_partition(self) -> dict[str, Any]:
        """Return the source partition under which Connect stores its offset."""
        return {"sourceClusterAlias": self.source, "targetClusterAlias": self.target}

    @classmethod
    def read(cls, key: bytes, value: bytes) -> Self:
        """Return the heartbeat of a record.

        Raises:
            BytesError: The bytes are not a heartbeat's.
        """
        names = _PartReader(key, "a heartbeat's key")
        source, target = names.text(), names.text()
        return cls(source, target, _PartReader(value, "a heartbeat").skip_version().long())


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The position of a group upstream, and the one downstream from which it loses nothing.

    Attributes:
        group: The consumer group.
        tp: The partition in the target cluster, such as ``west.orders-0``.
        upstream: The group's offset in the source cluster.
        downstream: The offset in the target cluster to go on from.
        metadata: The text that the group committed with its offset.

    Example:
        >>> mark = Checkpoint("app", TopicPartition("west.orders", 0), 10, 12)
        >>> Checkpoint.read(mark.key(), mark.value()) == mark
        True
    """

    group: str
    tp: TopicPartition
    upstream: int
    downstream: int
    metadata: str = ""

    def key(self) -> bytes:
        """Return the record's key: group and partition."""
        return _text(self.group) + _place(self.tp)

    def value(self) -> bytes:
        """Return the record's value: both offsets and the metadata."""
        return VERSION + struct.pack(">qq", self.upstream, self.downstream) + _text(self.metadata)

    def connect_partition(self) -> dict[str, Any]:
        """Return the source partition under which Connect stores its offset."""
        return {"group": self.group, "topic": self.tp.topic, "partition": self.tp.partition}

    @classmethod
    def read(cls, key: bytes, value: bytes) -> Self:
        """Return the checkpoint of a record.

        Raises:
            BytesError: The bytes are not a checkpoint's.
        """
        names, numbers = _PartReader(key, "a checkpoint's key"), _PartReader(value, "a checkpoint").skip_version()
        return cls(names.text(), names.tp(), numbers.long(), numbers.long(), numbers.text())


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """A record's offset in the source cluster and that of its copy in the target cluster.

    Attributes:
        tp: The partition in the source cluster.
        upstream: The offset there.
        downstream: The offset in the target cluster.
    """

    NO_OFFSET: ClassVar[int] = -1

    tp: TopicPartition
    upstream: int
    downstream: int

    def key(self) -> bytes:
        """Return the record's key: the partition."""
        return _place(self.tp)

    def value(self) -> bytes:
        """Return the record's value: both offsets."""
        return struct.pack(">qq", self.upstream, self.downstream)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> Self:
        """Return the offset sync of a record.

        Raises:
            BytesError: The bytes are not an offset sync's.
        """
        numbers = _PartReader(value, "an offset sync")
        return cls(_PartReader(key, "an offset sync's key").tp(), numbers.long(), numbers.long())


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) > 0x7FFF:
        raise BytesError(f"a text of {len(data)} bytes, of which a mirror's record takes 32767 at most: {text[:40]}...")
    return struct.pack(">h", len(data)) + data


def _place(tp: TopicPartition) -> bytes:
    return _text(tp.topic) + struct.pack(">i", tp.partition)


class _PartReader:
    """A reader of the parts of a key or value, one after another."""

    def __init__(self, data: bytes, what: str) -> None:
        self.data, self.at, self.what = data, 0, what

    def skip_version(self) -> _PartReader:
        self.take(2)
        return self

    def long(self) -> int:
        return int.from_bytes(self.take(8), "big", signed=True)

    def text(self) -> str:
        data = self.take(int.from_bytes(self.take(2), "big", signed=True))
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise BytesError(f"{self.what} holds bytes that are not text") from error

    def tp(self) -> TopicPartition:
        return TopicPartition(self.text(), int.from_bytes(self.take(4), "big", signed=True))

    def take(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self.data):
            hint = "Something else than a mirror has written to this topic."
            raise BytesError(f"{self.what} ends after {len(self.data)} bytes, in the middle of it", hint=hint)
        part, self.at = self.data[self.at : end], end
        return part
