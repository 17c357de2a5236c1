"""A segment: the changes of one task in one batch, in memory and in bytes.

A segment is one file: a magic word, a JSON header, sections of Arrow IPC (lz4), and a BLAKE2b checksum of all that.

    "PENSTSEG" | header length (4 bytes BE) | header (JSON) | sections ... | checksum (16 bytes)

The header says format version, kind (delta, snapshot, or merged: many deltas in one), application, fingerprint of the
topology, task, batch, the batch and the checksum of the segment before it, the task's small numbers, the offsets of its
input, and where each section is.
A section is either the changes of one store (columns ``key`` and ``value``; a null value deletes) or the rows that the
batch wrote to one topic. The checksum is also the segment's identity: its successor names it, so a chain of segments
can be followed from file to file, and neither a lost nor a replaced one goes unseen.

A snapshot that is large has its rows in parts: files of the same form, which its header names with their checksums.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import pyarrow as pa

from penstock.errors import CheckpointMismatchError, CorruptSegmentError
from penstock.serde.column import to_bytes_list
from penstock.state.maps import CHANGES_SCHEMA, NO_BATCH

__all__ = [
    "FORMAT_VERSION",
    "Segment",
    "SegmentHead",
    "SegmentName",
    "changes_batch",
    "damaged",
    "pack",
    "unpack",
]

FORMAT_VERSION = 1

_MAGIC = b"PENSTSEG"
_DIGEST_BYTES = 16
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)  # a worker has one core


Kind = Literal["delta", "merged", "snapshot"]
_KINDS: dict[str, Kind] = {"delta": "delta", "merged": "merged", "snapshot": "snapshot"}


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """The name of a segment's file. ``from_batch`` is the first batch of a merged one."""

    batch: int
    kind: Kind
    from_batch: int = NO_BATCH

    def __str__(self) -> str:
        return f"{self.first}-{self.batch}.merged" if self.kind == "merged" else f"{self.batch}.{self.kind}"

    def __contains__(self, other: SegmentName) -> bool:
        """Return whether a merged segment holds a delta, or another merged one."""
        return self.first <= other.first and other.batch <= self.batch and other.kind != "snapshot"

    @property
    def first(self) -> int:
        """The first batch that may be in it."""
        return self.from_batch if self.kind == "merged" else self.batch

    @classmethod
    def parse(cls, text: str) -> SegmentName | None:
        """Return the name, or None for a file that is not a segment."""
        numbers, _, kind = text.partition(".")
        first, dash, last = numbers.rpartition("-")
        if kind not in _KINDS or not last.isdecimal() or bool(dash) != (kind == "merged"):
            return None
        if not dash:
            return cls(int(last), _KINDS[kind])
        return cls(int(last), "merged", int(first)) if first.isdecimal() else None


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """The header of a segment: everything but its rows.

    ``previous`` is the batch of the segment before it (of a snapshot: of the newest segment in it), -1 for the first
    one; ``previous_checksum`` that segment's checksum. ``inputs`` is a checksum of the whole batch's input; empty where
    that was not noted. ``chain`` names the deltas in a merged segment by batch and checksum, ``parts`` the parts of a
    snapshot by label, checksum and stores.
    """

    kind: Kind
    application_id: str
    fingerprint: str
    task_id: str
    batch: int
    previous: int
    previous_checksum: str
    meta: dict[str, int] = field(default_factory=dict)
    input_offsets: dict[str, Any] = field(default_factory=dict)
    inputs: str = ""
    chain: Sequence[tuple[int, str]] = ()
    parts: Sequence[dict[str, Any]] = ()


class Segment:
    """One published segment; changes and outputs are decoded when they are asked for.

    Attributes:
        head: Its header.
        checksum: Its identity, hexadecimal; empty for the segment of an empty batch, which is not stored.
        size_bytes: Of the file.
        published_here: Whether this attempt has published it, rather than another one or an earlier run.
        stored: False for an empty batch.
        open_part: Reads a part of a snapshot; set by the reader of its head.
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
        self.open_part: Callable[[dict[str, Any]], Segment] | None = None
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
        """Return the segment that this process has just published; its rows are still in memory."""
        segment = cls(head, checksum, memoryview(b""), [], "")
        segment.size_bytes = size_bytes
        segment.published_here = True
        segment._own_changes = changes
        segment._outputs = outputs
        return segment

    @classmethod
    def empty(cls, head: SegmentHead) -> Segment:
        """Return the segment of a batch that changed nothing and wrote nothing."""
        return cls(head, "", memoryview(b""), [], "")

    @property
    def batch(self) -> int:
        return self.head.batch

    @property
    def first(self) -> int:
        """The first batch in it."""
        return self.head.chain[0][0] if self.head.chain else self.batch

    @property
    def links(self) -> Sequence[tuple[int, str]]:
        """Batch and checksum of the deltas in it, in order: itself, unless it is a merged one."""
        return self.head.chain or ((self.batch, self.checksum),)

    @property
    def identity(self) -> tuple[int, str]:
        """The batch and checksum by which the next segment names this one."""
        return self.links[-1]

    def follows(self, batch: int, checksum: str) -> bool:
        """Return whether it follows a replica with this newest segment."""
        before = (self.head.previous, self.head.previous_checksum)
        return before == (batch, checksum) or (batch, checksum) in self.head.chain

    @property
    def input_offsets(self) -> dict[str, Any]:
        """The publisher's input offsets, untouched."""
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
        """Yield keys (in byte order) and values of one store, in pieces; a value of None deletes."""
        for piece in self.change_batches(store):
            yield to_bytes_list(piece.column(0)), to_bytes_list(piece.column(1))  # type: ignore[misc]

    @property
    def own_changes(self) -> Mapping[str, pa.RecordBatch]:
        """The `changes` by store, of a segment that this process has published; else nothing."""
        return self._own_changes

    def change_batches(self, store: str) -> Iterator[pa.RecordBatch]:
        """Yield the `changes` as `CHANGES_SCHEMA`."""
        sections = [s for s in self._sections if s["what"] == "changes" and s["name"] == store]
        own = [self._own_changes[store]] if store in self._own_changes else []
        return chain(own, chain.from_iterable(map(self._read, sections)), self._in_parts(store))

    def _in_parts(self, store: str) -> Iterator[pa.RecordBatch]:
        for part in self.head.parts:
            if store in part["stores"]:
                assert self.open_part is not None  # noqa: S101 - set by read_segment
                yield from self.open_part(part).change_batches(store)

    @property
    def stores(self) -> list[str]:
        """The stores that it has changes of."""
        in_parts = (store for part in self.head.parts for store in part["stores"])
        here = (s["name"] for s in self._sections if s["what"] == "changes")
        return list(dict.fromkeys([*self._own_changes, *here, *in_parts]))

    def _read(self, section: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        start = section["offset"]
        with pa.ipc.open_stream(pa.py_buffer(self._data[start : start + section["length"]])) as reader:
            yield from reader


def changes_batch(keys: Sequence[bytes], values: Sequence[bytes | None]) -> pa.RecordBatch:
    """Return changes as they are written."""
    columns = [pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary())]
    return pa.RecordBatch.from_arrays(columns, schema=CHANGES_SCHEMA)


def pack(
    head: SegmentHead,
    changes: Mapping[str, Iterable[pa.RecordBatch]],
    outputs: Mapping[str, pa.RecordBatch],
) -> tuple[list[Any], str]:
    """Return the pieces of a segment's file in order, and its checksum.

    Args:
        head: The header.
        changes: Store -> its rows, in pieces.
        outputs: Topic -> the rows that were written to it.
    """
    sections: list[dict[str, Any]] = []
    bodies: list[Any] = []
    named = [("changes", name, pieces) for name, pieces in changes.items()]
    named += [("output", topic, [rows]) for topic, rows in outputs.items()]
    for what, name, pieces in named:
        body = _written(pieces)
        if body is not None:
            sections.append({"what": what, "name": name, "length": body.size})
            bodies.append(body)
    header = json.dumps({"version": FORMAT_VERSION, "sections": sections, **_head_facts(head)}).encode()
    parts: list[Any] = [_MAGIC + len(header).to_bytes(4, "big") + header, *bodies]
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return [*parts, digest.digest()], digest.hexdigest()


def _written(pieces: Iterable[pa.RecordBatch]) -> pa.Buffer | None:
    """Return the pieces as an Arrow stream; None if there are none."""
    sink = pa.BufferOutputStream()
    writer = None
    for piece in pieces:
        writer = writer or pa.ipc.new_stream(sink, piece.schema, options=_OPTIONS)
        writer.write_batch(piece)
    if writer is None:
        return None
    writer.close()
    return sink.getvalue()


def unpack(data: bytes | memoryview, where: str) -> Segment:
    """Return the segment in these bytes.

    Args:
        data: The whole file.
        where: Its address, for messages.

    Raises:
        CorruptSegmentError: The bytes are damaged or cut short.
        CheckpointMismatchError: They are of a format that this version does not know.
    """
    view = memoryview(data)
    if len(view) < len(_MAGIC) + 4 + _DIGEST_BYTES or bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise damaged(where, f"it has {len(view)} bytes and does not begin like a segment")
    start = len(_MAGIC) + 4
    end = start + int.from_bytes(view[start - 4 : start], "big")
    facts = _header(view[start:end])
    if facts is not None and facts["version"] != FORMAT_VERSION:  # whatever its checksum is like
        raise CheckpointMismatchError(
            f"segment {where} has format version {facts['version']}, this Penstock reads version {FORMAT_VERSION}",
            hint="Run the version of Penstock that wrote the checkpoint, or a newer one. Nothing was changed.",
            segment=where,
        )
    digest = hashlib.blake2b(view[:-_DIGEST_BYTES], digest_size=_DIGEST_BYTES)
    if facts is None or digest.digest() != bytes(view[-_DIGEST_BYTES:]):
        raise damaged(where, "its checksum does not match its contents")
    sections = facts["sections"]
    for section in sections:
        section["offset"] = end
        end += section["length"]
    head_facts = {name: facts[name] for name in SegmentHead.__dataclass_fields__ if name in facts}
    if "chain" in head_facts:
        head_facts["chain"] = tuple((batch, checksum) for batch, checksum in head_facts["chain"])
    return Segment(SegmentHead(**head_facts), digest.hexdigest(), view, sections, where)


def _header(data: memoryview) -> dict[str, Any] | None:
    """Parse a header; return None if it is damaged."""
    try:
        facts = json.loads(bytes(data))
    except ValueError:
        return None
    return facts if isinstance(facts, dict) and isinstance(facts.get("version"), int) else None


def _head_facts(head: SegmentHead) -> dict[str, Any]:
    facts = {name: getattr(head, name) for name in SegmentHead.__dataclass_fields__}
    return {name: value for name, value in facts.items() if value != ()}  # few have a chain, or parts


def _one_batch(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)


def damaged(where: str, why: str) -> CorruptSegmentError:
    """Return the error for a damaged segment."""
    return CorruptSegmentError(
        f"segment {where} is damaged: {why}",
        hint="If its batch was never committed, remove the file and start again: the batch then runs again. "
        "Otherwise bring the file back from a backup, or remove it and run `penstock state rebuild`.",
        segment=where,
    )
