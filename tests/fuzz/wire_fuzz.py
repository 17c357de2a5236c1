"""Record batches and answers to fetches with something wrong in them: whatever it is, only a LogError may leave.

The tests run a sample; ``python tests/fuzz/wire_fuzz.py 1000000`` runs as many as are wanted, and says what they did.
"""

from __future__ import annotations

import argparse
import random
import resource
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
from crc32c import crc32c

from penstock.errors import LogError
from penstock.log.base import HEADERS_TYPE, TopicPartition
from penstock.log.kafka.wire.batch_format import HEADER, compress, decompress
from penstock.log.kafka.wire.batch_reader import BatchSource, decode_batches, end_of_batches
from penstock.log.kafka.wire.connection import parse_answer
from penstock.log.kafka.wire.frequent_messages import FrequentCodec, codec_of
from penstock.log.kafka.wire.record_batches import ProducerState, encode_batches

PLACE = TopicPartition("orders", 3)
MOST_BYTES = 1 << 20
_SCHEMA = pa.schema(
    [("timestamp", pa.int64()), ("key", pa.large_binary()), ("value", pa.large_binary()), ("headers", HEADERS_TYPE)]
)
_EXTREME = (-1, 0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 62, (1 << 64) - 1)
_FIELDS = [(0, 8), (8, 4), (12, 4), (16, 1), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (53, 4), (57, 4)]


def stored(rows: list[dict[str, object]], codec: int, first: int, state: ProducerState | None = None) -> bytes:
    """Records as a broker has them."""
    found = []
    records = pa.RecordBatch.from_pylist(rows, _SCHEMA)
    for data, count in encode_batches(records, 4000, codec, state or ProducerState()):
        found.append(first.to_bytes(8, "big") + data[8:])
        first += count
    return b"".join(found)


def corpus() -> list[bytes]:
    """Batches of every kind, right ones."""
    plain: list[dict[str, object]] = [
        {"timestamp": 1000 + i, "key": b"k%d" % i, "value": b"v" * (i * 7), "headers": None} for i in range(12)
    ]
    nulls: list[dict[str, object]] = [
        {"timestamp": 5, "key": None, "value": None, "headers": None},
        {"timestamp": 1 << 41, "key": b"", "value": b"", "headers": [{"key": "h", "value": None}] * 3},
        {"timestamp": -1, "key": b"k" * 200, "value": b"v" * 3000, "headers": [{"key": "a" * 70, "value": b"b" * 70}]},
    ]
    found = [stored(plain + nulls, codec, 10 * codec) for codec in range(5)]
    found += [stored(nulls[:1], 0, 7) + stored(plain, 4, 8) + stored(nulls, 0, 30)]
    transactional = ProducerState(7, 0, 0, transactional=True)
    marker = bytearray(stored([{**nulls[0], "key": b"\0\0\0\0", "value": b"\0" * 6}], 0, 12, transactional))
    marker[22] |= 0x20
    found += [stored(plain, 0, 0, transactional) + signed(marker) + stored(plain, 3, 13, transactional)]
    return found


def signed(batch: bytearray) -> bytes:
    """A batch with the checksum that it should have."""
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def changed(data: bytes, dice: random.Random) -> bytes:
    """Data with a few bytes changed, added, taken out or doubled."""
    out = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        at = dice.randrange(len(out)) if out else 0
        kind = dice.randrange(7)
        if kind == 0 and out:
            out[at] ^= 1 << dice.randrange(8)
        elif kind == 1 and out:
            out[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
        elif kind == 2:  # a varint, or some of its bytes
            out[at : at + dice.randrange(3)] = bytes(
                [0xFF] * dice.randrange(11) + [dice.choice((0x00, 0x01, 0x0F, 0x7F))]
            )
        elif kind == 3:
            out[at : at + dice.randrange(1, 9)] = b""
        elif kind == 4:
            out[at:at] = out[at : at + dice.randrange(1, 40)]
        elif kind == 5:
            size = dice.choice((1, 2, 4, 8))
            out[at : at + size] = (dice.choice(_EXTREME) & ((1 << 8 * size) - 1)).to_bytes(size, "big")
        else:
            out[at:] = out[at:][: dice.randrange(1, 60)]
    return bytes(out)


def mutated_batches(data: bytes, dice: random.Random) -> bytes:
    """Batches with something wrong in the first, of which the checksum mostly tells nothing."""
    (length,) = struct.unpack_from(">i", data, 8)
    head, body, rest = bytearray(data[: HEADER.size]), data[HEADER.size : 12 + length], data[12 + length :]
    if dice.random() < 0.3:
        at, size = dice.choice(_FIELDS)
        head[at : at + size] = (dice.choice(_EXTREME) & ((1 << 8 * size) - 1)).to_bytes(size, "big")
    codec = data[22] & 7
    if dice.random() < 0.8:
        if codec and dice.random() < 0.7:
            body = bytes(compress(codec, changed(decompress(codec, body, MOST_BYTES), dice)))
        else:
            body = changed(body, dice)
    if head[8:12] == data[8:12]:
        head[8:12] = (HEADER.size - 12 + len(body)).to_bytes(4, "big")
    whole = bytearray(head + body)
    if dice.random() < 0.95:
        whole = bytearray(signed(whole))
    return bytes(whole) + (rest if dice.random() < 0.8 else b"")


def read_batches(data: bytes, aborted: list[tuple[int, int]] | None = None) -> str:
    """Reads them as a fetch does; says how it went."""
    after = end_of_batches(data, 5)
    try:
        found = decode_batches(data, 5, 1 << 62, aborted, BatchSource(PLACE, MOST_BYTES))
    except LogError as error:
        if TopicPartition(error.topic, error.partition) != PLACE or not isinstance(error.offset, int):
            raise AssertionError("a LogError without its place") from error
        return "refused"
    found.records.validate(full=True)
    assert found.records.nbytes <= 3 * (MOST_BYTES + len(data)), "more than there is"
    assert 5 <= found.next_offset <= max(after, 5)
    offsets = found.records.column("offset").to_pylist()
    assert offsets == sorted(set(offsets))
    assert not offsets or (offsets[0] >= 5 and offsets[-1] < found.next_offset)
    return "read"


def answers() -> list[tuple[type | FrequentCodec, bytes]]:
    """Right answers to fetches in the oldest and the newest version that is asked for, with what reads them."""
    from kafka.protocol.consumer import FetchRequest, FetchResponse

    topic = FetchResponse.FetchableTopicResponse
    part = topic.PartitionData
    aborted = part.AbortedTransaction(producer_id=7, first_offset=0)
    found: list[tuple[type | FrequentCodec, bytes]] = []
    for version in (4, 11, 12):
        request = FetchRequest(
            max_wait_ms=1, min_bytes=1, max_bytes=10, isolation_level=0, session_id=0, session_epoch=-1, topics=[],
            forgotten_topics_data=[], rack_id="", version=version,
        )  # fmt: skip
        request.with_header(correlation_id=5, client_id="x")
        for data in corpus():
            partition = part(
                partition_index=PLACE.partition, error_code=0, high_watermark=99, last_stable_offset=99,
                log_start_offset=0, aborted_transactions=[aborted], preferred_read_replica=-1, records=data,
            )  # fmt: skip
            answer = FetchResponse(
                throttle_time_ms=0,
                error_code=0,
                session_id=0,
                responses=[topic(topic=PLACE.topic, partitions=[partition])],
                version=version,
            )
            answer.with_header(correlation_id=5)
            encoded = bytes(answer.encode(framed=False, header=True))
            codec = codec_of(request.name, version)
            readers = (request.header.get_response_class(), *(() if codec is None else (codec,)))
            found += [(reader, encoded) for reader in readers]
    return found


def read_answer(kind: type | FrequentCodec, data: bytes) -> str:
    """Reads one as a connection and a fetch do; says how it went."""
    from confluent_kafka import KafkaException
    from kafka.protocol.frame import KafkaBytes

    from penstock.log.kafka.wire.fetch import partition_of

    frame = KafkaBytes(len(data))
    memoryview(frame)[:] = data
    try:
        found = partition_of(parse_answer(frame, 5, kind), PLACE, 5)
    except ValueError:  # the connection is closed for it
        return "not understood"
    except KafkaException:
        return "error"
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
    return read_batches(found.records or b"", aborted)


def batch_cases(seed: int) -> Iterator[Callable[[], str]]:
    """Endless mutations of batches."""
    dice = random.Random(seed)
    whole = corpus()
    while True:
        data = mutated_batches(dice.choice(whole), dice)
        aborted = dice.choice((None, [], [(7, 0)]))
        yield lambda data=data, aborted=aborted: read_batches(data, aborted)  # type: ignore[misc]


def answer_cases(seed: int) -> Iterator[Callable[[], str]]:
    """Endless mutations of answers: anywhere in them, most often before their records."""
    dice = random.Random(seed)
    whole = answers()
    while True:
        kind, data = dice.choice(whole)
        front = dice.choice((60, 100, len(data)))
        mutated = changed(data[:front], dice) + data[front:]
        yield lambda kind=kind, data=mutated: read_answer(kind, data)  # type: ignore[misc]


def run(cases: Iterator[Callable[[], str]], count: int) -> Counter[str]:
    """Runs so many, and counts how they went; what must not leave, leaves."""
    outcome: Counter[str] = Counter()
    for _ in range(count):
        outcome[next(cases)()] += 1
    return outcome


def main() -> None:
    """Runs as many of both as the command line says, in pieces, with the slowest piece and the memory peak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name, make in (("batches", batch_cases), ("answers", answer_cases)):
        outcome: Counter[str] = Counter()
        first: dict[str, int] = {}
        slowest, began = 0.0, time.monotonic()
        cases = make(options.seed)
        for number in range(options.count):
            one = time.process_time()
            try:
                outcome[next(cases)()] += 1
            except Exception as error:  # noqa: BLE001 - counted, with the number to find it again
                outcome[f"{type(error).__name__} {error}"[:200]] += 1
                first.setdefault(f"{type(error).__name__} {error}"[:200], number)
            slowest = max(slowest, time.process_time() - one)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(
            f"{name}: {options.count:,} in {time.monotonic() - began:.0f} s, slowest {slowest * 1000:.0f} ms, {peak} MiB"
        )
        for what, count in outcome.most_common(20):
            print(f"  {count:>9,} {what}{f' (first: {first[what]})' if what in first else ''}")


if __name__ == "__main__":
    main()
