"""Record batches of one producer, given to another: only their headers change."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from crc32c import crc32c

from penstock.log.kafka.wire.batch_format import AFTER_CRC, CODEC, HEADER, MAGIC, TRANSACTIONAL
from penstock.log.kafka.wire.batch_reader import BatchHead

if TYPE_CHECKING:
    from penstock.log.kafka.wire.record_batches import ProducerState
    from penstock.log.stored import StoredBatch

__all__ = ["given_to"]

_LARGEST_SEQUENCE = 0x7FFFFFFF


def given_to(producer: ProducerState, batches: Sequence[StoredBatch]) -> Iterator[tuple[bytes, int]]:
    """Yield batches as those of another producer, each with its number of records; the records stay as they are."""
    sequence = producer.sequence
    for batch in batches:
        head = BatchHead._make(HEADER.unpack_from(batch.data))
        attributes = head.attributes & CODEC | (TRANSACTIONAL if producer.transactional else 0)
        identity = producer.producer_id, producer.epoch, sequence
        after = AFTER_CRC.pack(attributes, head.last, head.first_ms, head.last_ms, *identity, head.records)
        body = memoryview(batch.data)[HEADER.size :]
        front = struct.pack(">qiibI", 0, head.length, -1, MAGIC, crc32c(body, crc32c(after)))
        yield b"".join((front, after, body)), batch.count
        if sequence >= 0:
            sequence = (sequence + batch.count) & _LARGEST_SEQUENCE
