"""What travels through Spark between stages: few rows, each a whole chunk.

A row is an envelope: which stage and task it is for, and a payload. Records travel as Arrow IPC inside it, so Spark
moves a handful of blobs and never looks at a record; ranges of offsets travel as descriptors, and the task reads the
log itself. Reports go to the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pyarrow as pa

from penstock.log.base import TopicPartition

__all__ = [
    "ENVELOPE_DDL",
    "ENVELOPE_SCHEMA",
    "Envelope",
    "Kind",
    "decode",
    "encode",
    "encode_all",
    "pack_records",
    "unpack_records",
]

ENVELOPE_DDL = "level int, slot int, kind int, run string, topic string, partition int, origin string, payload binary"
ENVELOPE_SCHEMA = pa.schema(
    [
        ("level", pa.int32()),  # the stage that opens it; -1: the driver
        ("slot", pa.int32()),  # where it goes in that stage's shuffle
        ("kind", pa.int32()),
        ("run", pa.string()),  # sub-topology, partition and phase, joined by "_"
        ("topic", pa.string()),
        ("partition", pa.int32()),
        (
            "origin",
            pa.string(),
        ),  # who wrote it, and a number: the order of rows is the same in every attempt
        ("payload", pa.binary()),
    ]
)


_PAYLOAD_BYTES = 8 << 20
_BATCH_BYTES = 64 << 20


class Kind(IntEnum):
    """What a payload is."""

    RECORDS = 0
    RANGE = 1
    TICK = 2
    REPORT = 3
    GLOBALS = 4


@dataclass(frozen=True, slots=True)
class Envelope:
    """One row."""

    level: int
    slot: int
    kind: Kind
    run: str
    topic: str
    partition: int
    origin: str
    payload: bytes

    @property
    def range(self) -> tuple[int, int]:
        """Start and end offset of a RANGE."""
        start, end = json.loads(self.payload)
        return start, end

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The end offsets of a GLOBALS."""
        return {TopicPartition(topic, partition): end for topic, partition, end in json.loads(self.payload)}

    @property
    def report(self) -> dict[str, Any]:
        """The facts of a REPORT."""
        found: dict[str, Any] = json.loads(self.payload)
        return found


def encode(envelopes: Sequence[Envelope]) -> pa.RecordBatch:
    """Envelopes as an Arrow batch."""
    columns = [[getattr(e, field.name) for e in envelopes] for field in ENVELOPE_SCHEMA]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ENVELOPE_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ENVELOPE_SCHEMA)


def encode_all(envelopes: Iterable[Envelope]) -> Iterator[pa.RecordBatch]:
    """As `encode`, in batches of limited size: an Arrow column of bytes ends at 2 GiB, and the JVM's memory sooner."""
    waiting: list[Envelope] = []
    size = 0
    for envelope in envelopes:
        waiting.append(envelope)
        size += len(envelope.payload)
        if size >= _BATCH_BYTES:
            yield encode(waiting)
            waiting, size = [], 0
    if waiting:
        yield encode(waiting)


def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[Envelope]:
    """Envelopes of Arrow batches."""
    for batch in batches:
        for row in batch.to_pylist():
            yield Envelope(**{**row, "kind": Kind(row["kind"])})


def pack_records(records: pa.RecordBatch) -> list[bytes]:
    """Records as payloads of limited size, in order."""
    rows = max(1, records.num_rows * _PAYLOAD_BYTES // max(records.nbytes, 1))
    return [_packed(records.slice(start, rows)) for start in range(0, records.num_rows, rows)]


def _packed(records: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as writer:
        writer.write_batch(records)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpack_records(payload: bytes) -> pa.RecordBatch:
    """The records of a payload."""
    with pa.ipc.open_stream(pa.py_buffer(payload)) as reader:
        return reader.read_next_batch()
