"""What a stream thread commits with an offset: Kafka Streams' ``TopicPartitionMetadata``, as text.

The bytes are a version, the partition's time, and numbers that processors keep; a task that moves to another member,
also to one in Java, goes on with them.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.base.java_text.hashing import hash_order

__all__ = ["OffsetMetadata"]

_UNKNOWN_TIME = -1
_VERSION, _VERSION_WITHOUT_NUMBERS = 2, 1
_HEAD = struct.Struct(">bq")
_SIZE, _NUMBER = struct.Struct(">i"), struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """The time of a partition, and the numbers of processors.

    Attributes:
        partition_time_ms: The largest timestamp of the records before the offset; -1: there was none.
        numbers: What processors keep, by name: the time up to which windows were emitted.

    >>> OffsetMetadata(1_000).encode()
    'AgAAAAAAAAPo'
    >>> OffsetMetadata.decode("AgAAAAAAAAPo")
    OffsetMetadata(partition_time_ms=1000, numbers={})
    """

    partition_time_ms: int = _UNKNOWN_TIME
    numbers: Mapping[str, int] = field(default_factory=dict)

    def encode(self) -> str:
        """Return the text to commit with an offset."""
        parts = [_HEAD.pack(_VERSION, self.partition_time_ms)]
        if self.numbers:
            parts.append(_SIZE.pack(len(self.numbers)))
        for name in hash_order(sorted(self.numbers)):
            name_bytes = name.encode()
            parts += (_SIZE.pack(len(name_bytes)), name_bytes, _NUMBER.pack(self.numbers[name]))
        return base64.b64encode(b"".join(parts)).decode()

    @classmethod
    def decode(cls, text: str) -> OffsetMetadata:
        """Return the metadata of a text; as in Kafka Streams, what it is not counts as unknown.

        >>> OffsetMetadata.decode("set by a reset")
        OffsetMetadata(partition_time_ms=-1, numbers={})
        """
        return cls.parse(text) or cls()

    @classmethod
    def parse(cls, text: str) -> OffsetMetadata | None:
        """Return the metadata of a text; None if it is another text.

        >>> OffsetMetadata.parse("AgAAAAAAAAPo"), OffsetMetadata.parse("")
        (OffsetMetadata(partition_time_ms=1000, numbers={}), None)
        """
        try:
            return cls._of_bytes(base64.b64decode(text, validate=True))
        except (binascii.Error, struct.error, UnicodeError, ValueError):
            return None

    @classmethod
    def _of_bytes(cls, data: bytes) -> OffsetMetadata | None:
        version, time_ms = _HEAD.unpack_from(data)
        at = _HEAD.size
        if version == _VERSION_WITHOUT_NUMBERS or (version == _VERSION and at == len(data)):
            return cls(time_ms)
        if version != _VERSION:
            return None
        (count,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        numbers: dict[str, int] = {}
        for _ in range(count):  # each has at least 12 bytes, so a wrong count ends at the end of the data
            (size,) = _SIZE.unpack_from(data, at)
            at += _SIZE.size
            name = data[at : at + size]
            if size < 0 or len(name) < size:
                return None
            (numbers[name.decode()],) = _NUMBER.unpack_from(data, at + size)
            at += size + _NUMBER.size
        return cls(time_ms, numbers)
