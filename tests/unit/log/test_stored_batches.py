"""Record batches that go from one log to another as they are stored, and those that have to be encoded anew."""

import struct

import pyarrow as pa
import pytest
from crc32c import crc32c

from penstock.errors import LogError
from penstock.log.base import TopicPartition
from penstock.log.kafka.wire.batch_format import AFTER_CRC, CRC_ENDS, HEADER, TRANSACTIONAL
from penstock.log.kafka.wire.batch_reader import BatchHead, BatchSource, decode_batches
from penstock.log.kafka.wire.produce import given_to
from penstock.log.kafka.wire.record_batches import ProducerState, encode_batches, stored_batches

SOURCE = BatchSource(TopicPartition("orders", 0))
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def records(numbers, size=200):
    return pa.RecordBatch.from_pydict(
        {
            "timestamp": [1_700_000_000_000 + number for number in numbers],
            "key": [b"k%d" % number for number in numbers],
            "value": [(b"v%d" % number).ljust(size, b".") for number in numbers],
            "headers": [[{"key": "h", "value": b"%d" % number}] for number in numbers],
        },
        schema=pa.schema(
            [
                ("timestamp", pa.int64()),
                ("key", pa.large_binary()),
                ("value", pa.large_binary()),
                ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            ]
        ),
    )


def batch(numbers, base=None, codec=0, producer=None, attributes=0, size=200):
    """A batch as a broker stores it, from its first offset on."""
    numbers = list(numbers)
    state = ProducerState(*(producer or (-1, -1, -1, False)))
    [(data, _)] = encode_batches(records(numbers, size), 1 << 24, codec, state)
    return restored(data, numbers[0] if base is None else base, attributes)


def restored(data, base, attributes=0, last=None):
    head = BatchHead._make(HEADER.unpack_from(data))
    kept = head.attributes | attributes
    delta = head.last if last is None else last
    after = AFTER_CRC.pack(
        kept, delta, head.first_ms, head.last_ms, head.producer, head.producer_epoch, head.sequence, head.records
    )
    crc = crc32c(data[HEADER.size :], crc32c(after))
    return struct.pack(">qiibI", base, head.length, 7, 2, crc) + after + data[HEADER.size :]


def values(found):
    data = b"".join(given[0] for given in given_to(ProducerState(), found.batches))
    numbered, at = b"", 0
    for each, count in given_to(ProducerState(), found.batches):
        numbered += restored(each, at)
        at += count
    assert len(numbered) == len(data)
    rows = decode_batches(numbered, 0, 1 << 62).records.to_pylist()
    for row in rows:
        assert row["headers"] == [{"key": "h", "value": row["key"][1:]}]
        assert row["timestamp"] == 1_700_000_000_000 + int(row["key"][1:])
    return [int(row["key"][1:]) for row in rows]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_batches_are_copied_byte_for_byte_but_for_their_headers(codec):
    stored = [batch(range(300), codec=codec), batch(range(300, 500), codec=codec)]
    found = stored_batches(b"".join(stored), 0, (), SOURCE)
    assert found.next_offset == 500
    assert values(found) == list(range(500))
    assert [each.data for each in found.batches] == stored
    given = [each for each, _ in given_to(ProducerState(7, 3, 40, transactional=True), found.batches)]
    heads = [BatchHead._make(HEADER.unpack_from(each)) for each in given]
    assert [head.sequence for head in heads] == [40, 40 + found.batches[0].count][: len(heads)]
    for each, head in zip(given, heads, strict=True):
        assert crc32c(each[CRC_ENDS:]) == head.crc
        assert (head.base, head.leader_epoch, head.producer, head.producer_epoch) == (0, -1, 7, 3)
        assert head.attributes == codec | TRANSACTIONAL


def test_what_was_aborted_is_left_out_and_markers_too():
    aborted = batch(range(20), producer=(9, 0, 0, True))
    committed = batch(range(21, 60), producer=(8, 0, 0, True))
    marker = struct.pack(">hh", 0, 0)
    body = b"\0\0\0" + b"\x08" + marker + b"\x01" + b"\0"
    [(data, _)] = encode_batches(records([20]), 1 << 20)
    head = BatchHead._make(HEADER.unpack_from(data))
    control = struct.pack(">b", 2 * len(body)) + body
    after = AFTER_CRC.pack(0x30, 0, head.first_ms, head.last_ms, 9, 0, -1, 1)
    crc = crc32c(control, crc32c(after))
    end = struct.pack(">qiibI", 20, HEADER.size - 12 + len(control), 0, 2, crc) + after + control
    found = stored_batches(aborted + end + committed, 0, [(9, 0)], SOURCE)
    assert values(found) == list(range(21, 60))
    assert found.next_offset == 60


@pytest.mark.parametrize("kind", ["gap at the end", "time of the broker", "from the middle", "delete horizon"])
def test_batches_that_brokers_refuse_from_producers_are_encoded_anew(kind):
    stored, start, wanted = batch(range(100, 150), codec=4), 100, list(range(100, 150))
    if kind == "gap at the end":
        stored = restored(stored, 100, last=60)
    elif kind == "delete horizon":
        stored = restored(stored, 100, 0x40)
    elif kind == "from the middle":
        start, wanted = 120, list(range(120, 150))
    else:
        stored = restored(stored, 100, 0x08)
    found = stored_batches(stored, start, (), SOURCE)
    [made] = found.batches
    head = BatchHead._make(HEADER.unpack_from(made.data))
    assert (head.records, head.last, head.attributes) == (len(wanted), len(wanted) - 1, 4)
    assert found.next_offset == (161 if kind == "gap at the end" else 150)
    assert [(each.first, each.count) for each in made.stretches] == [(wanted[0], len(wanted))]
    if kind != "time of the broker":
        assert values(found) == wanted


def test_tiny_batches_are_joined_and_keep_their_offsets():
    stored = [batch([number], codec=1) for number in (0, 1, 2, 5, 6)]
    found = stored_batches(b"".join(stored) + batch(range(7, 100)), 0, (), SOURCE)
    assert [each.count for each in found.batches] == [5, 93]
    assert [(each.first, each.count) for each in found.batches[0].stretches] == [(0, 3), (5, 2)]
    assert values(found) == [0, 1, 2, 5, 6, *range(7, 100)]


def test_a_damaged_batch_is_named():
    stored = bytearray(batch(range(10)))
    stored[-1] ^= 1
    with pytest.raises(LogError, match="orders-0: the record batch at offset 0 is damaged"):
        stored_batches(bytes(stored), 0, (), SOURCE)
