"""What a segment is, in memory and in bytes.

A segment is one file: a magic word, a JSON header, sections of Arrow IPC (lz4), and a BLAKE2b checksum of all that.

    "PENSTSEG" | header length (4 bytes BE) | header (JSON) | sections ... | checksum (16 bytes)

The header says format version, kind (delta or snapshot), application, topology fingerprint, task, batch, the batch and
the checksum of the segment before it, the task's small numbers, the offsets of its input, and where each section is.
A section is either the changes of one store (columns ``key`` and ``value``; a null value deletes) or the rows that the
batch wrote to one topic. The checksum is also the segment's identity: its successor names it, so a chain of segments
can be followed from file to file, and neither a lost nor a replaced one goes unseen.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from penstock.errors import CorruptSegmentError
from penstock.state.base import CHANGES_SCHEMA
from penstock.state.views.frames import to_bytes_list

__all__ = [
    "FORMAT_VERSION",
    "NO_BATCH",
    "Segment",
    "SegmentHead",
    "SegmentName",
    "changes_batch",
    "pack",
    "unpack",
]

FORMAT_VERSION = 1
NO_BATCH = -1

_MAGIC = b"PENSTSEG"
_DIGEST_BYTES = 16
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """The name of a segment's file."""

    batch: int
    kind: Literal["delta", "snapshot"]

    def __str__(self) -> str:
        return f"{self.batch}.{self.kind}"

    @classmethod
    def parse(cls, text: str) -> SegmentName | None:
        """The name, or None for a file that is no segment."""
        number, _, kind = text.partition(".")
        known: dict[str, Literal["delta", "snapshot"]] = {"delta": "delta", "snapshot": "snapshot"}
        return cls(int(number), known[kind]) if number.isdecimal() and kind in known else None


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """All of a segment but its rows.

    ``previous`` is the batch of the segment before it (of a snapshot: of the newest segment in it), -1 for the first
    one; ``previous_checksum`` that segment's checksum.
    """

    kind: Literal["delta", "snapshot"]
    application_id: str
    fingerprint: str
    task_id: str
    batch: int
    previous: int
    previous_checksum: str
    meta: dict[str, int] = field(default_factory=dict)
    input_offsets: dict[str, Any] = field(default_factory=dict)


class Segment:
    """One published segment; changes and outputs are decoded when they are asked for.

    Attributes:
        head: Its header.
        checksum: Its identity, hexadecimal; empty for the segment of an empty batch, which is not stored.
        size_bytes: Of the file.
        published_here: Whether this attempt has published it, rather than another one or an earlier run.
        stored: False for an empty batch.
    """

    def __init__(
        self, head: SegmentHead, checksum: str, data: memoryview, sections: list[dict[str, Any]], where: str
    ) -> None:
        self.head = head
        self.checksum = checksum
        self.size_bytes = len(data)
        self.published_here = False
        self.stored = bool(checksum)
        self.where = where
        self._data = data
        self._sections = sections
        self._outputs: dict[str, pa.RecordBatch] | None = None
        self._own_changes: Mapping[str, pa.RecordBatch] = {}

    @classmethod
    def of_publisher(
        cls,
        head: SegmentHead,
        checksum: str,
        size_bytes: int,
        changes: Mapping[str, pa.RecordBatch],
        outputs: dict[str, pa.RecordBatch],
    ) -> Segment:
        """The segment that this process has just published; its rows are still at hand."""
        segment = cls(head, checksum, memoryview(b""), [], "")
        segment.size_bytes = size_bytes
        segment.published_here = True
        segment._own_changes = changes
        segment._outputs = outputs
        return segment

    @classmethod
    def empty(cls, head: SegmentHead) -> Segment:
        """The segment of a batch that changed nothing and wrote nothing."""
        return cls(head, "", memoryview(b""), [], "")

    @property
    def batch(self) -> int:
        return self.head.batch

    @property
    def input_offsets(self) -> dict[str, Any]:
        """What the publisher gave for its input, untouched."""
        return self.head.input_offsets

    @property
    def outputs(self) -> dict[str, pa.RecordBatch]:
        """Topic -> the rows that the batch wrote."""
        if self._outputs is None:
            self._outputs = {
                s["name"]: _one_batch(list(self._read(s))) for s in self._sections if s["what"] == "output"
            }
        return self._outputs

    def changes(self, store: str) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
        """Keys (in byte order) and values of one store, in pieces; a value of None deletes."""
        for piece in self.change_batches(store):
            yield to_bytes_list(piece.column(0)), to_bytes_list(piece.column(1))  # type: ignore[misc]

    def change_batches(self, store: str) -> Iterator[pa.RecordBatch]:
        """`changes` as `CHANGES_SCHEMA`."""
        found = [s for s in self._sections if s["what"] == "changes" and s["name"] == store]
        own = [self._own_changes[store]] if store in self._own_changes else []
        return chain(own, *map(self._read, found))

    @property
    def stores(self) -> list[str]:
        """The stores that it has changes of."""
        return [*self._own_changes, *(s["name"] for s in self._sections if s["what"] == "changes")]

    def _read(self, section: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        start = section["offset"]
        with pa.ipc.open_stream(pa.py_buffer(self._data[start : start + section["length"]])) as reader:
            yield from reader


def changes_batch(keys: Sequence[bytes], values: Sequence[bytes | None]) -> pa.RecordBatch:
    """Changes as they are written."""
    columns = [pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary())]
    return pa.RecordBatch.from_arrays(columns, schema=CHANGES_SCHEMA)


def pack(
    head: SegmentHead,
    changes: Mapping[str, Iterable[pa.RecordBatch]],
    outputs: Mapping[str, pa.RecordBatch],
    *,
    scratch: Path | None = None,
) -> tuple[list[Any], str]:
    """The pieces of a segment's file in order, and its checksum.

    Args:
        head: The header.
        changes: Store -> its rows, in pieces.
        outputs: Topic -> the rows that were written to it.
        scratch: A directory for what would be too much for memory; what is put there is gone when the pieces are.
    """
    sections: list[dict[str, Any]] = []
    bodies: list[Any] = []
    named = [("changes", name, pieces) for name, pieces in changes.items()]
    named += [("output", topic, [rows]) for topic, rows in outputs.items()]
    for what, name, pieces in named:
        body = _written(pieces, scratch)
        if body is not None:
            sections.append({"what": what, "name": name, "length": body.size})
            bodies.append(body)
    header = json.dumps({"version": FORMAT_VERSION, "sections": sections, **_head_facts(head)}).encode()
    parts: list[Any] = [_MAGIC + len(header).to_bytes(4, "big") + header, *bodies]
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return [*parts, digest.digest()], digest.hexdigest()


def _written(pieces: Iterable[pa.RecordBatch], scratch: Path | None) -> pa.Buffer | None:
    """The pieces as an Arrow stream; None if there are none."""
    file = None if scratch is None else scratch / f".section.{os.getpid()}.{secrets.token_hex(4)}"
    sink = pa.BufferOutputStream() if file is None else pa.OSFile(str(file), "wb")
    try:
        with sink:
            writer = None
            for piece in pieces:
                writer = writer or pa.ipc.new_stream(sink, piece.schema, options=_OPTIONS)
                writer.write_batch(piece)
            if writer is None:
                return None
            writer.close()
            if file is None:
                return sink.getvalue()
        with pa.memory_map(str(file)) as mapped:
            return mapped.read_buffer()
    finally:
        if file is not None:
            file.unlink(missing_ok=True)


def unpack(data: bytes | memoryview, where: str) -> Segment:
    """The segment in these bytes.

    Args:
        data: The whole file.
        where: Its address, for messages.

    Raises:
        CorruptSegmentError: The bytes are damaged or cut short, or of a format that this version does not know.
    """
    view = memoryview(data)
    if len(view) < len(_MAGIC) + 4 + _DIGEST_BYTES or bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise _damaged(where, f"it has {len(view)} bytes and does not begin like a segment")
    digest = hashlib.blake2b(view[:-_DIGEST_BYTES], digest_size=_DIGEST_BYTES)
    if digest.digest() != bytes(view[-_DIGEST_BYTES:]):
        raise _damaged(where, "its checksum does not match its contents")
    start = len(_MAGIC) + 4
    end = start + int.from_bytes(view[start - 4 : start], "big")
    facts = json.loads(bytes(view[start:end]))
    version, sections = facts.pop("version"), facts.pop("sections")
    if version != FORMAT_VERSION:
        raise CorruptSegmentError(
            f"segment {where} has format version {version}, this Penstock reads version {FORMAT_VERSION}",
            hint="Run the version of Penstock that wrote the checkpoint, or a newer one.",
            segment=where,
        )
    for section in sections:
        section["offset"] = end
        end += section["length"]
    return Segment(SegmentHead(**facts), digest.hexdigest(), view, sections, where)


def _head_facts(head: SegmentHead) -> dict[str, Any]:
    return {name: getattr(head, name) for name in SegmentHead.__dataclass_fields__}


def _one_batch(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)


def _damaged(where: str, why: str) -> CorruptSegmentError:
    return CorruptSegmentError(
        f"segment {where} is damaged: {why}",
        hint="If its batch was never committed, remove the file and start again: the batch is then run anew. "
        "Otherwise bring the file back from a backup, or remove it and run `penstock state rebuild`.",
        segment=where,
    )
