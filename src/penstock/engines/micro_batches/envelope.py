"""Envelopes: the few rows that Spark moves between stages, each with a whole chunk of records.

An envelope names its stage and task and has a payload. Records travel in it as Arrow IPC, those for all tasks of a slot
together, so Spark moves a handful of blobs and never handles a record. Ranges of offsets travel as descriptors, and the
task reads the log itself. Reports go to the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "ENVELOPE_DDL",
    "ENVELOPE_SCHEMA",
    "PAYLOAD_BYTES",
    "Envelope",
    "EnvelopeKind",
    "decode",
    "encode",
    "encode_all",
    "pack_records",
    "unpack_records",
]

ENVELOPE_DDL = "level int, slot int, kind int, run string, topic string, partition int, parts string, payload binary"
ENVELOPE_SCHEMA = pa.schema(
    [
        ("level", pa.int32()),  # the stage that receives it; -1: the driver
        ("slot", pa.int32()),  # its Spark task in that stage's shuffle
        ("kind", pa.int32()),
        ("run", pa.string()),  # sub-topology, partition (-1: several) and phase, joined by "_"
        ("topic", pa.string()),
        ("partition", pa.int32()),
        (
            "parts",
            pa.string(),
        ),  # of RECORDS: the writers and their numbers of records, so that the order is always the same
        ("payload", pa.binary()),
    ]
)


PAYLOAD_BYTES = 8 << 20
_BATCH_BYTES = 64 << 20
_OPTIONS = pa.ipc.IpcWriteOptions(use_threads=False)  # a worker has one core


class EnvelopeKind(IntEnum):
    """The kind of an envelope's payload."""

    RECORDS = 0
    RANGE = 1
    TICK = 2
    REPORT = 3
    FACTS = 4


@dataclass(frozen=True, slots=True)
class Envelope:
    """A row that Spark moves between stages; its fields are the columns of ``ENVELOPE_SCHEMA``."""

    level: int
    slot: int
    kind: EnvelopeKind
    run: str
    topic: str
    partition: int
    parts: str
    payload: bytes | pa.Buffer

    @property
    def range(self) -> tuple[int, int]:
        """The start and end offset of a RANGE."""
        start, end, *_ = json.loads(bytes(self.payload))
        return start, end

    @property
    def is_gone(self) -> bool:
        """True if the topic of a RANGE was deleted after the range was planned."""
        return len(json.loads(bytes(self.payload))) > 2

    @property
    def report(self) -> dict[str, Any]:
        """The facts of a REPORT."""
        facts: dict[str, Any] = json.loads(bytes(self.payload))
        return facts


def encode(envelopes: Sequence[Envelope]) -> pa.RecordBatch:
    """Make an Arrow batch of envelopes."""
    columns = [[getattr(e, field.name) for e in envelopes] for field in ENVELOPE_SCHEMA]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ENVELOPE_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ENVELOPE_SCHEMA)


def encode_all(envelopes: Iterable[Envelope]) -> Iterator[pa.RecordBatch]:
    """Make Arrow batches of limited size: a column of bytes holds at most 2 GiB, and the JVM's memory less."""
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


def decode(batches: Iterable[pa.RecordBatch], level: int) -> Iterator[Envelope | pa.RecordBatch]:
    """Iterate over the envelopes of a stage; those of other stages stay Arrow batches, to be passed on as they are."""
    for batch in batches:
        is_here = pc.equal(batch.column("level"), level)
        there = batch.filter(pc.invert(is_here))
        if there.num_rows:
            yield there
        here = batch.filter(is_here)
        payloads = here.column("payload")
        for number, row in enumerate(here.drop_columns(["payload"]).to_pylist()):
            yield Envelope(**{**row, "kind": EnvelopeKind(row["kind"])}, payload=payloads[number].as_buffer())


def pack_records(records: pa.RecordBatch) -> Iterator[tuple[bytes, int]]:
    """Pack records into payloads of limited size, in order; yield each payload and its number of records."""
    rows = max(1, records.num_rows * PAYLOAD_BYTES // max(records.nbytes, 1))
    for start in range(0, records.num_rows, rows):
        piece = records.slice(start, rows)
        yield _packed(piece), piece.num_rows


def _packed(records: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema, options=_OPTIONS) as writer:
        writer.write_batch(records)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpack_records(payload: bytes | pa.Buffer) -> pa.RecordBatch:
    """Return the records of a payload, without copying them."""
    with pa.ipc.open_stream(pa.py_buffer(payload)) as reader:
        return reader.read_next_batch()
