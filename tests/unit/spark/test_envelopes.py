from __future__ import annotations

import pickle

import pyarrow as pa

from penstock.errors import AppFailedError, ProcessingError
from penstock.log.base import HEADERS_TYPE, TopicPartition
from penstock.log.open import open_log
from penstock.spark.arrivals import topic_batches
from penstock.spark.envelope import Envelope, Kind, decode, encode, encode_all, pack_records, unpack_records
from penstock.spark.failures import error_from, wrapped
from penstock.spark.offsets import SourceOffset, admit


def rows(times: list[int], size: int = 1) -> pa.RecordBatch:
    columns = {
        "timestamp": pa.array(times, pa.int64()),
        "key": pa.array([b"k"] * len(times), pa.large_binary()),
        "value": pa.array([str(t).encode() * size for t in times], pa.large_binary()),
        "headers": pa.nulls(len(times), HEADERS_TYPE),
    }
    return pa.RecordBatch.from_pydict(columns)


def envelope(origin: str, payload: bytes) -> Envelope:
    return Envelope(1, 0, Kind.RECORDS, "1_0_0", "t-repartition", 0, origin, payload)


def test_envelopes_come_back() -> None:
    sent = [envelope("0_0_0:000000", b"x"), Envelope(-1, 0, Kind.REPORT, "1_0_0", "", -1, "1_0", b"{}")]
    assert list(decode([encode(sent)])) == sent
    assert list(decode(encode_all(sent))) == sent


def test_large_payloads_are_cut_and_keep_their_order() -> None:
    records = rows(list(range(10_000)), size=1000)
    payloads = pack_records(records)
    assert len(payloads) > 1
    assert pa.concat_batches([unpack_records(p) for p in payloads]) == records


def test_rows_of_several_tasks_are_merged_by_time_in_any_order_of_delivery() -> None:
    sent = [
        envelope("0_0_0:000000", pack_records(rows([1, 5, 3]))[0]),
        envelope("0_0_0:000001", pack_records(rows([9]))[0]),
        envelope("0_1_0:000000", pack_records(rows([2, 5, 8]))[0]),
    ]
    with open_log("memory://") as log:
        for delivered in (sent, sent[::-1]):
            (batch,) = topic_batches(delivered, log, 3)
            assert batch.records.column("timestamp").to_pylist() == [1, 2, 5, 3, 5, 8, 9]
            assert batch.records.column("offset").to_pylist() == [(3 << 32) + i for i in range(7)]


def test_offsets_and_admission() -> None:
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    assert SourceOffset.of(SourceOffset({a: 3, b: 4}, 7).to_json()) == SourceOffset({a: 3, b: 4}, 7)
    assert admit({a: 10, b: 10}, {a: 10, b: 10}, 5, 5) == {a: 10, b: 10}
    assert admit({a: 0, b: 0}, {a: 1000, b: 1}, 10, 1000) == {a: 9, b: 1}
    assert admit({a: 0}, {a: 1000, b: 50}, 10_000, 20) == {a: 20, b: 20}


def test_errors_travel_in_text() -> None:
    error = ProcessingError("it broke", hint="mend it", node="N", record=object(), line=3)
    found = error_from(f"SparkException: ... {wrapped(error)} ... at java")
    assert isinstance(found, ProcessingError)
    assert (found.node, found.line, found.hint) == ("N", 3, "mend it")
    assert isinstance(error_from(str(wrapped(KeyError("x")))), AppFailedError)
    assert error_from("nothing here") is None
    pickle.dumps(found)
