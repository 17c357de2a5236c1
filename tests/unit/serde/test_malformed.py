"""Bytes that were written to do harm: each serde refuses them before they cost anything, by row and by column."""

from __future__ import annotations

import struct
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from penstock import Consumed, Serdes, StreamsBuilder, TopologyTestDriver
from penstock.base.json_depth import depth_of
from penstock.errors import SerializationError
from penstock.serde.json_serde import MOST_DEPTH, decode_json
from penstock.serde.windowed import Window, Windowed
from penstock.testing import EmbeddedRegistry

CHAIN = {
    "type": "record",
    "name": "Chain",
    "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Chain"]}],
}


def column(*rows: bytes | None) -> pa.Array:
    return pa.array(rows, pa.large_binary())


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">bii", 0, 0, 1 << 30), struct.pack(">bii", 0, 1 << 30, 0), struct.pack(">bii", 0, -5, 7),
        struct.pack(">bi", 1, 0x7FFFFFFF), struct.pack(">bi", 1, -5), struct.pack(">bii", 1, 1, -2), b"", b"\0", b"\2",
        struct.pack(">biiii", 0, 2, 1, 1, 2) + bytes(8), struct.pack(">biii", 0, 1, 9, 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("inner", ["string", "long", "uuid"])
def test_lists_that_lie_about_their_lengths(inner: str, data: bytes) -> None:
    serde = Serdes.list(inner)
    with pytest.raises(SerializationError, match="a list in Kafka's format"):
        serde.deserialize(data)
    with pytest.raises(SerializationError):
        serde.decode(column(data))


def nested_json(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def nested_auto(depth: int) -> bytes:
    data = b"n"
    for _ in range(depth):
        data = b"l\xff" + len(data).to_bytes(4, "big") + data
    return data


def chain(depth: int) -> bytes:
    return b"\x02\x02" * depth + b"\x02\x00"


@pytest.mark.parametrize(
    ("serde", "fine", "deep"),
    [
        (Serdes.json(), nested_json(MOST_DEPTH), nested_json(MOST_DEPTH + 1)),
        (Serdes.json(), nested_json(300), nested_json(200_000)),
        (Serdes.auto(), nested_auto(100), nested_auto(101)),
        (Serdes.auto(), nested_auto(50), nested_auto(3_000)),
        (Serdes.avro(CHAIN, framing="none"), chain(200), chain(5_000)),
        (Serdes.avro(CHAIN, framing="none"), chain(10), chain(1_000_000)),
    ],
)
def test_depth_is_bounded(serde: Any, fine: bytes, deep: bytes) -> None:
    assert serde.deserialize(fine) is not None
    for decode in (lambda: serde.deserialize(deep), lambda: serde.decode(column(deep)).items()):
        with pytest.raises(SerializationError):
            decode()


def test_what_auto_writes_it_reads() -> None:
    value: list[Any] = []
    for _ in range(99):
        value = [value]
    assert Serdes.auto().deserialize(Serdes.auto().serialize(value)) == value
    with pytest.raises(SerializationError, match="more than 100 nested containers"):
        Serdes.auto().serialize([[value]])


def test_items_of_no_bytes_are_bounded() -> None:
    nothings = {"type": "record", "name": "N", "fields": [{"name": "of", "type": {"type": "array", "items": "null"}}]}
    serde = Serdes.avro(nothings, framing="none")
    assert serde.deserialize(b"\xa0\x9c\x01\0") == {"of": [None] * 10_000}
    with pytest.raises(SerializationError, match="items of no bytes"):
        serde.deserialize(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\0")


def test_depth_is_that_of_brackets_outside_of_texts() -> None:
    assert depth_of(nested_json(600)) == 600
    assert depth_of(b'"' + b"[" * 600 + b'"') == 0
    assert depth_of(b"[" + b"[]," * 600 + b"1]") == 2
    assert depth_of(b'["\\"' + b"[" * 600 + b'"]') == 1


def test_a_row_of_json_cannot_change_another_one() -> None:
    # The first two make one object together, the last one two: Polars would give the third row's value to the second.
    rows = [b'{"a":1', b'"e":3}', b'{"a":5}', b'{"a":8},{"a":9}']
    serde = Serdes.json({"a": int})
    with pytest.raises(SerializationError, match="row 0"):
        serde.decode(column(*rows))
    nested = ['{"a":[{"b":1}', '{"a":[]}', '{"b":1}]}', '{"a":[]},{"a":[]}']
    with pytest.raises(pl.exceptions.PolarsError):
        decode_json(pl.Series(nested), pl.Struct({"a": pl.List(pl.Struct({"b": pl.Int64}))}))
    assert decode_json(pl.Series(['{"a":1}', None, "null", ' {"a":"}{"} ']), pl.Struct({"a": pl.String})).to_list() == [
        {"a": "1"}, None, None, {"a": "}{"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (Serdes.time_windowed("string", 10), b"k" + struct.pack(">q", -1)),
        (Serdes.session_windowed("string"), b"k" + struct.pack(">qq", 5, -1)),
        (Serdes.session_windowed("string"), b"k" + struct.pack(">qq", 5, 6)),
    ],
)
def test_windows_that_cannot_be(serde: Any, data: bytes) -> None:
    good = serde.serialize(Windowed("k", Window(0, 10)))
    with pytest.raises(SerializationError, match="windows that start"):
        serde.deserialize(data)
    with pytest.raises(SerializationError, match="row 1"):
        serde.decode(column(good, data))


class Raising:
    """A user's serde that raises what it likes."""

    name = "raising"

    def serialize(self, value: Any) -> bytes | None:
        return value

    def deserialize(self, data: bytes | None) -> Any:
        if data == b"bad":
            raise ValueError("\ud800 is not for headers")
        return data

    def encode(self, column: Any) -> pa.Array:
        return pa.array(column.items(), pa.large_binary())

    def decode(self, data: pa.Array) -> Any:
        from penstock.serde.column import Column

        return Column.of_items([self.deserialize(one) for one in data.to_pylist()])


def run(serde: Any, rows: list[bytes], *, batch_size: int, topic: str = "in") -> tuple[list[int], list[int]]:
    """Numbers of the records that came out, and of the dead letters."""
    builder = StreamsBuilder()
    builder.stream(topic, Consumed(key_serde="long", value_serde=serde)).map_values(lambda _: "seen").to("out")
    settings = {"deserialization.exception.handler": "continue", "errors.dead.letter.queue.topic.name": "dead"}
    settings |= {"default.key.serde": "long", "default.value.serde": "string"}
    with TopologyTestDriver(builder.build(), settings, batch_size=batch_size) as driver:
        for number, row in enumerate(rows):
            driver.pipe_raw(topic, struct.pack(">q", number), row, number)
        driver.flush()
        found = [driver.output_topic(name, "long", "bytes").read_records_to_list() for name in ("out", "dead")]
    return [record.key for record in found[0]], [record.key for record in found[1]]


@pytest.mark.parametrize("batch_size", [1, 40])
def test_whatever_a_users_serde_raises_goes_to_the_handler(batch_size: int) -> None:
    rows = [b"bad" if number % 5 == 0 else b"good" for number in range(40)]
    out, dead = run(Raising(), rows, batch_size=batch_size)
    assert dead == list(range(0, 40, 5))
    assert len(out) == 32


@pytest.mark.parametrize("batch_size", [1, 40])
def test_a_reference_that_leads_nowhere_goes_to_the_handler(batch_size: int) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "nowhere.json"}}}
    serde = Serdes.json_schema(schema, framing="none", registry={"json.fail.invalid.schema": "true"})
    rows = [b'{"a":1}' if number % 5 == 0 else b"{}" for number in range(40)]
    out, dead = run(serde, rows, batch_size=batch_size)
    assert dead == list(range(0, 40, 5))
    assert len(out) == 32


@pytest.mark.parametrize("batch_size", [1, 20])
def test_a_record_that_names_the_next_schema_does_not_poison_those_that_have_it(batch_size: int) -> None:
    with EmbeddedRegistry() as registry:
        first = registry.register("other-value", '"long"')
        garbage = b"\0" + (first + 1).to_bytes(4, "big") + b"x"
        reader = Serdes.avro(registry=registry.url)
        builder = StreamsBuilder()
        builder.stream("in", Consumed(key_serde="long", value_serde=reader)).map_values(str).to("out")
        settings = {"deserialization.exception.handler": "continue", "default.key.serde": "long"}
        settings |= {"default.value.serde": "string"}
        with TopologyTestDriver(builder.build(), settings, batch_size=batch_size) as driver:
            for _ in range(20):
                driver.pipe_raw("in", bytes(8), garbage, 0)
            writer: Any = Serdes.avro('"string"', registry=registry.url)
            good = writer.for_topic("in", "value").serialize("good")
            assert good[:5] == garbage[:5]
            for _ in range(20):
                driver.pipe_raw("in", bytes(8), good, 0)
            driver.flush()
            assert driver.output_topic("out").read_values_to_list() == ["good"] * 20
