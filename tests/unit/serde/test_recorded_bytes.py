"""Bytes recorded from the Java library."""

from __future__ import annotations

import json
import math
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

from penstock.log.partitioner import murmur2, partition_for, partitions_for
from penstock.serde import Column, Serdes, Window, Windowed

DATA = Path(__file__).parent / "data"


def load(name):
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def value_of(case):
    kind, value = case["type"], case["value"]
    if kind in ("double", "float"):
        return float(value)
    if kind == "byte_array":
        return bytes.fromhex(value)
    if kind == "uuid":
        return UUID(value)
    if kind == "list<uuid>":
        return [UUID(v) for v in value]
    return value


def same(kind, got, wanted):
    if kind in ("double", "float"):
        if math.isnan(wanted):
            return math.isnan(got)
        return math.isclose(got, wanted, rel_tol=1e-6 if kind == "float" else 0) and math.copysign(
            1, got
        ) == math.copysign(1, wanted)
    return got == wanted and type(got) is type(wanted)


@pytest.mark.parametrize("kind", sorted({case["type"] for case in load("serdes")}))
def test_serdes_write_and_read_what_java_writes(kind):
    serde = Serdes.of(kind)
    cases = [case for case in load("serdes") if case["type"] == kind]
    rows = [bytes.fromhex(case["bytes"]) for case in cases]
    values = [value_of(case) for case in cases]
    for row, value in zip(rows, values, strict=True):
        assert serde.serialize(value) == row
        assert same(kind, serde.deserialize(row), value)
    assert serde.encode(Column.of_items([None, *values])).to_pylist() == [None, *rows]
    decoded = serde.decode(pa.array([b"?", None, *rows, None], pa.large_binary()).slice(1))
    assert decoded.items()[0] is None
    assert all(same(kind, got, value) for got, value in zip(decoded.items()[1:-1], values, strict=True))
    again = serde.encode(Column.of_items(decoded.items()))
    assert again.to_pylist() == [None, *rows, None]
    if decoded.is_columnar:
        assert serde.encode(Column.of_series(decoded.series())).to_pylist() == [None, *rows, None]


def test_windowed_keys():
    for case in load("windowed_serde"):
        size = case["end"] - case["start"]
        key = Windowed(case["key"], Window(case["start"], case["end"]))
        timed, session = Serdes.time_windowed("string", size), Serdes.session_windowed("string")
        for serde, field in ((timed, "time_windowed"), (session, "session_windowed")):
            row = bytes.fromhex(case[field])
            assert serde.serialize(key) == row
            assert serde.deserialize(row) == key
            assert serde.encode(Column.of_items([key, None])).to_pylist() == [row, None]
            assert serde.decode(pa.array([None, row, row, None]).slice(1)).items() == [key, key, None]
        assert (
            timed.deserialize(bytes.fromhex(case["time_windowed"])).window.end
            == case["time_deserialized_end_with_size"]
        )
        for n in (2, 7, 12):
            assert partitions_for(timed.encode_keys(Column.of_items([key])), n).tolist() == [
                case[f"partition_by_record_key_{n}"]
            ]


def test_partitioner():
    cases = load("partitioner")
    keys = [bytes.fromhex(case["bytes"]) for case in cases]
    for case, key in zip(cases, keys, strict=True):
        assert murmur2(key) == case["murmur2"]
        for n, partition in case["partition"].items():
            assert partition_for(key, int(n)) == partition
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        data = pa.array([b"shift", *keys], kind).slice(1)
        for n in (1, 2, 3, 7, 12):
            assert partitions_for(data, n).tolist() == [case["partition"][str(n)] for case in cases]


def test_null_keys_go_round_robin_from_the_seed():
    keys = pa.array([None, b"a", None, None], pa.binary())
    assert partitions_for(keys, 3, seed=2).tolist() == [2, partition_for(b"a", 3), 0, 1]


def test_long_keys():
    keys = [b"x" * n for n in (0, 1, 511, 512, 5000, 7)]
    assert partitions_for(pa.array(keys), 1000).tolist() == [partition_for(k, 1000) for k in keys]
