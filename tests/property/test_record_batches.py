"""Kafka's record batches: what is encoded comes back, whole, cut off, compressed, or behind aborted transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import LogError
from penstock.log.base import HEADERS_TYPE
from penstock.log.kafka.wire import batch_reader, record_batches
from penstock.log.kafka.wire.batch_reader import decode_batches
from penstock.log.kafka.wire.record_batches import ProducerState, encode_batches

SCHEMA = pa.schema(
    [("timestamp", pa.int64()), ("key", pa.large_binary()), ("value", pa.large_binary()), ("headers", HEADERS_TYPE)]
)
header = st.fixed_dictionaries({"key": st.text(max_size=90), "value": st.none() | st.binary(max_size=90)})
record = st.fixed_dictionaries(
    {
        "timestamp": st.integers(-1, 2**42),
        "key": st.none() | st.binary(max_size=90),
        "value": st.none() | st.binary(max_size=300),
        "headers": st.none() | st.lists(header, min_size=1, max_size=2),
    }
)
tables = st.lists(record, max_size=30).map(lambda rows: pa.RecordBatch.from_pylist(rows, SCHEMA))


def at(data: bytes, offset: int) -> bytes:
    """The batch as a broker stores it: with its base offset."""
    return offset.to_bytes(8, "big") + data[8:]


def stored(
    records: pa.RecordBatch, most: int, codec: int = 0, first: int = 0, producer: ProducerState | None = None
) -> bytes:
    pieces = []
    for data, count in encode_batches(records, most, codec, producer or ProducerState()):
        pieces.append(at(data, first))
        first += count
    return b"".join(pieces)


@settings(max_examples=150, deadline=None)
@given(tables, st.integers(100, 2000), st.integers(0, 4), st.integers(0, 2**40))
def test_round_trip(records: pa.RecordBatch, most: int, codec: int, first: int) -> None:
    data = stored(records, most, codec, first)
    decoded = decode_batches(data, first, first + len(records))
    assert decoded.records.drop_columns(["offset"]).to_pylist() == records.to_pylist()
    assert decoded.records.column("offset").to_pylist() == list(range(first, first + len(records)))
    assert decoded.next_offset == first + len(records)


@settings(max_examples=60, deadline=None)
@given(tables, st.data())
def test_any_range_and_any_cut(records: pa.RecordBatch, data: st.DataObject) -> None:
    whole = stored(records, 200)
    start = data.draw(st.integers(0, len(records)))
    end = data.draw(st.integers(start, len(records)))
    assert (
        decode_batches(whole, start, end)
        .records.drop_columns(["offset"])
        .equals(decode_batches(whole, 0, 2**60).records.drop_columns(["offset"]).slice(start, end - start))
    )
    cut = decode_batches(whole[: data.draw(st.integers(0, len(whole)))], 0, 2**60)
    assert cut.next_offset == len(cut.records)
    assert cut.records.drop_columns(["offset"]).to_pylist() == records.slice(0, len(cut.records)).to_pylist()


def marker(offset: int, producer: int, kind: int) -> bytes:
    row = {"timestamp": 0, "key": b"\0\0" + kind.to_bytes(2, "big"), "value": b"\0" * 6, "headers": None}
    state = ProducerState(producer, 0, -1, transactional=True)
    ((data, _),) = encode_batches(pa.RecordBatch.from_pylist([row], SCHEMA), 1000, 0, state)
    control = bytearray(at(data, offset))
    control[22] |= 0x20  # the control bit of the attributes
    control[17:21] = crc32c(bytes(control[21:])).to_bytes(4, "big")
    return bytes(control)


def one(offset: int, value: bytes, producer: int | None = None) -> bytes:
    row = {"timestamp": 0, "key": None, "value": value, "headers": None}
    state = ProducerState() if producer is None else ProducerState(producer, 0, 0, transactional=True)
    return stored(pa.RecordBatch.from_pylist([row], SCHEMA), 1000, 0, offset, state)


def test_aborted_transactions_are_left_out_and_committed_ones_are_not() -> None:
    data = b"".join(
        [
            one(0, b"plain"), one(1, b"aborted", 7), one(2, b"other", 8), marker(3, 7, 0), one(4, b"again", 7),
            marker(5, 8, 1), marker(6, 7, 1),
        ]
    )  # fmt: skip
    seen = decode_batches(data, 0, 100, aborted=[(7, 1)])
    assert seen.records.column("value").to_pylist() == [b"plain", b"other", b"again"]
    assert seen.next_offset == 7
    assert len(decode_batches(data, 0, 100, aborted=None).records) == 4


def test_damage_is_told() -> None:
    data = bytearray(one(5, b"value"))
    data[16] = 1
    with pytest.raises(LogError, match="message format 1"):
        decode_batches(bytes(data), 0, 10)
    data[16] = 2
    data[-2] ^= 1
    with pytest.raises(LogError, match="offset 5 is damaged"):
        decode_batches(bytes(data), 0, 10)


@contextmanager
def few(limit: int) -> Iterator[None]:
    """Up to so many records are encoded and decoded one by one, larger batches by column."""
    before = record_batches.FEW
    record_batches.FEW = batch_reader.FEW = limit
    try:
        yield
    finally:
        record_batches.FEW = batch_reader.FEW = before


plain = record.map(lambda row: {**row, "headers": None})
edges = st.sampled_from([-1, 0, 2**61, 2**61 + 1, 2**62, -(2**62)])
stamped = st.builds(lambda row, stamp: {**row, "timestamp": stamp}, record | plain, edges | st.integers(0, 2**42))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(plain, max_size=30) | st.lists(stamped, max_size=30),
    st.integers(100, 4000),
    st.integers(0, 4),
    st.integers(-1, 2**31 - 1),
)
def test_records_one_by_one_have_the_bytes_of_columns(
    rows: list[dict[str, Any]], most: int, codec: int, sequence: int
) -> None:
    records = pa.RecordBatch.from_pylist(rows, SCHEMA)
    producer = ProducerState(7, 3, sequence, transactional=True)
    with few(0):
        wanted = list(encode_batches(records, most, codec, producer))
    with few(1000):
        assert list(encode_batches(records, most, codec, producer)) == wanted


def outcome(data: bytes, start: int, end: int) -> object:
    try:
        return decode_batches(data, start, end)
    except LogError as error:
        return str(error)


def with_changes(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    """Bytes of the records changed, with a checksum that is right."""
    found = bytearray(data)
    for place, byte in changes:
        found[61 + place % max(1, len(data) - 61)] = byte
    found[17:21] = crc32c(bytes(found[21:])).to_bytes(4, "big")
    return bytes(found)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(plain | record, min_size=1, max_size=8), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    st.data(),
)
def test_records_one_by_one_are_those_of_columns_damaged_or_not(
    parts: list[list[dict[str, Any]]], changes: list[tuple[int, int]], data: st.DataObject
) -> None:
    batches, offset = [], 0
    for rows in parts:
        batch = stored(pa.RecordBatch.from_pylist(rows, SCHEMA), 1 << 20, 0, offset)
        batches.append(with_changes(batch, changes) if data.draw(st.booleans()) else batch)
        offset += len(rows) + data.draw(st.integers(0, 3))
    start = data.draw(st.integers(0, offset))
    end = data.draw(st.integers(start, offset + 1))
    with few(0):
        wanted = outcome(b"".join(batches), start, end)
    with few(1000):
        assert outcome(b"".join(batches), start, end) == wanted
