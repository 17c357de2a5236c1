"""Serdes of users: two methods are enough, what is missing is refused when the topology is built, names are stable."""

from __future__ import annotations

import runpy
import subprocess
import sys

import pyarrow as pa
import pytest

from penstock import (
    Consumed,
    JoinWindows,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
)
from penstock.errors import ConfigError, PenstockError, SerializationError
from penstock.serde import BaseSerde
from penstock.serde.base import Serde
from penstock.serde.column import Column
from penstock.testing import TopologyTestDriver
from penstock.topology.plan.plan import plan_of
from penstock.topology.plan.plan_json import document_of


class Pair:
    """Two methods and nothing else; it cannot cope with null."""

    def serialize(self, value):
        return "|".join(value).encode()

    def deserialize(self, data):
        return tuple(data.decode().split("|"))


class JsonSerde(BaseSerde):
    """Named like a built-in one, which it is not."""

    def serialize(self, value):
        return repr(value).encode()

    def deserialize(self, data):
        return data


class OnlyWrites:
    def serialize(self, value):
        return b""


class OnlyReads:
    def deserialize(self, data):
        return data


class WithTopic:
    def serialize(self, topic, value):
        return b""

    def deserialize(self, data):
        return data


class Async:
    async def serialize(self, value):
        return b""

    def deserialize(self, data):
        return data


class NamedBy7(Pair):
    name = 7


class WithArguments(Pair):
    def __init__(self, separator):
        self.separator = separator


REFUSED = {
    OnlyWrites: "has no deserialize",
    OnlyReads: "has no serialize",
    WithTopic: "takes other arguments than one",
    Async: "is async",
    NamedBy7: "name of serde NamedBy7 is int 7",
    WithArguments: "without arguments",
    object: "is not a serde",
}
CONFIG = {"default.key.serde": "string", "default.value.serde": "string"}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("verb", [Consumed, Produced, Materialized])
def test_what_is_missing_is_refused_when_the_topology_is_built(kind, verb):
    with pytest.raises(PenstockError, match=REFUSED[kind]) as caught:
        verb(value_serde=kind)
    assert "serialize" in str(caught.value) or "instance" in str(caught.value) or "text" in str(caught.value)


@pytest.mark.parametrize("given", [Pair, Pair()])
def test_two_methods_make_a_whole_serde(given):
    serde = Serdes.of(given)
    assert isinstance(serde, Serde)
    assert serde.name.endswith("test_own_serdes.Pair")
    assert "0x" not in serde.name
    assert serde.serialize(None) is None
    assert serde.deserialize(None) is None
    assert serde == Serdes.of(Pair())
    assert Serdes.list(given).deserialize(Serdes.list(given).serialize([("a", "b")])) == [("a", "b")]


def test_parameters_make_serdes_differ():
    assert Serdes.of(WithArguments("|")) == Serdes.of(WithArguments("|"))
    assert Serdes.of(WithArguments("|")) != Serdes.of(WithArguments("-"))


def test_what_serialize_returns_has_to_be_bytes():
    class Text(Pair):
        def serialize(self, value):
            return "text"

    with pytest.raises(PenstockError, match="bytes or None, not str 'text'"):
        Serdes.of(Text).serialize(1)


def test_a_class_of_ones_own_is_never_taken_for_a_built_in_one():
    name = Serdes.of(JsonSerde).name
    for wanted in (name, f"list<{name}>", "com.acme.StringSerde"):
        with pytest.raises(ConfigError, match="there is no serde"):
            Serdes.of(wanted)
    assert Serdes.of("org.apache.kafka.common.serialization.Serdes$StringSerde") == Serdes.string()


def test_the_stored_plan_has_the_name_of_the_class():
    builder = StreamsBuilder()
    builder.table("in", Consumed(value_serde=Pair()), Materialized("store"))
    builder.stream("in2", Consumed(value_serde=Pair)).to_table(Materialized("other", value_serde=Pair()))
    topology = builder.build()
    document = str(document_of(plan_of(topology, "app", {"in": 1, "in2": 1}), topology, CONFIG))
    assert "test_own_serdes.Pair" in document
    assert "0x" not in document


SCRIPT = """
from penstock import Serdes
class Own:
    def serialize(self, value): return value
    def deserialize(self, data): return data
NAME = Serdes.of(Own).name
if __name__ == "__main__":
    print(NAME)
"""


def test_a_script_names_it_as_its_module_does(tmp_path, monkeypatch):
    (tmp_path / "shop.py").write_text(SCRIPT)
    as_program = subprocess.run([sys.executable, tmp_path / "shop.py"], capture_output=True, text=True, check=True)
    as_module = subprocess.run([sys.executable, "-m", "shop"], capture_output=True, text=True, check=True, cwd=tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert as_program.stdout.strip() == as_module.stdout.strip() == "shop.Own" == runpy.run_module("shop")["NAME"]


def test_everywhere_in_the_driver():
    """Streams, tables, joins of tables, windows, joins of streams, stores, repartition topics, defaults."""
    builder = StreamsBuilder()
    left = builder.table("left", Consumed(value_serde=Pair()), Materialized("left-store"))
    right = builder.table("right", Consumed(value_serde=Pair()))
    left.join(right, lambda a, b: a + b).to_stream().to("joined", Produced(value_serde=Pair()))
    left.left_join(right, lambda a, b: a + (b or ()), Materialized("kept", value_serde=Pair)).to_stream().to(
        "kept-out", Produced(value_serde=Pair())
    )
    stream = builder.stream("stream", Consumed(value_serde=Pair()))
    stream.join(left, lambda a, b: a + b).to("enriched", Produced(value_serde=Pair()))
    stream.group_by_key().windowed_by(TimeWindows.of(10)).reduce(lambda a, b: a + b).to_stream(lambda k, _: k.key).to(
        "windowed", Produced(value_serde=Pair())
    )
    joined = StreamJoined(key_serde="string", value_serde=Pair(), other_value_serde=Pair())
    stream.join(stream, lambda a, b: a + b, JoinWindows.of(10), joined).to("pairs", Produced(value_serde=Pair()))
    stream.map_values(lambda value: value * 2).to_table(Materialized("default-serde")).to_stream().to("default-out")
    with TopologyTestDriver(builder.build(), {**CONFIG, "default.value.serde": Pair()}) as driver:
        for topic in ("left", "right", "stream"):
            driver.input_topic(topic, "string", Pair()).pipe((topic, "x"), key="k", timestamp=1)

        def read(topic):
            return driver.output_topic(topic, "string", Pair).read_records_to_list()[-1].value

        assert read("joined") == ("left", "x", "right", "x")
        assert read("kept-out") == ("left", "x", "right", "x")
        assert read("enriched") == ("stream", "x", "left", "x")
        assert read("windowed") == ("stream", "x")
        assert read("pairs") == ("stream", "x", "stream", "x")
        assert read("default-out") == ("stream", "x", "stream", "x")
        assert driver.store("left-store").get("k").value == ("left", "x")


class Picky:
    """Takes no text with "bad" in it."""

    def __init__(self, error):
        self.error = error

    def serialize(self, value):
        if "bad" in value:
            raise self.error
        return value.encode()

    def deserialize(self, data):
        return data.decode()


def _topology(place, serde):
    """A topology in which a store's values go through a serde."""
    builder, store = StreamsBuilder(), Materialized("store", value_serde=serde)
    if place == "table":
        builder.table("in", None, store).to_stream().to("out", Produced(value_serde="string"))
        return builder.build()
    stream = builder.stream("in")
    grouped = stream.group_by_key()
    if place == "to_table":
        stream.to_table(store).to_stream().to("out")
    elif place == "reduce":
        grouped.reduce(lambda _, value: value, store).to_stream().to("out")
    elif place == "aggregate":
        grouped.aggregate(str, lambda key, value, _: value, store).to_stream().to("out")
    elif place == "join":
        joined = StreamJoined(value_serde=serde, other_value_serde="string")
        stream.join(stream, lambda one, two: one, JoinWindows.of(10), joined).to("out")
    else:
        windows = TimeWindows.of(1000) if place == "windows" else SessionWindows.of(1000)
        windowed = grouped.windowed_by(windows).reduce(lambda _, value: value, store)
        windowed.to_stream(lambda key, _: key.key).to("out")
    return builder.build()


PLACES = ("table", "to_table", "reduce", "aggregate", "join", "windows", "sessions")


def _piped(place, error, batch_size, **settings):
    config = {**CONFIG, **settings}
    with TopologyTestDriver(_topology(place, Picky(error)), config, batch_size=batch_size) as driver:
        driver.input_topic("in", "string", "string").pipe_many(
            [(f"k{at}", text, at) for at, text in enumerate(["a", "bad1", "b", "bad2", "c"])]
        )
        driver.flush()
        return [(one.key, one.value) for one in driver.output_topic("out").read_records_to_list()]


@pytest.mark.parametrize("cache", [0, 10_000_000])
@pytest.mark.parametrize("batch_size", [1, 2, 5])
@pytest.mark.parametrize("place", PLACES)
def test_records_that_a_store_does_not_take_are_left_out_in_batches_too(place, batch_size, cache):
    settings = {"processing.exception.handler": "continue", "statestore.cache.max.bytes": cache}
    for error in (ValueError("no bad ones"), SerializationError("no bad ones")):
        assert _piped(place, error, batch_size, **settings) == [("k0", "a"), ("k2", "b"), ("k4", "c")]


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("place", PLACES)
def test_an_error_of_a_stores_serde_names_operator_and_line(place, batch_size):
    with pytest.raises(
        PenstockError, match=r"Picky.serialize \(.*test_own_serdes.py:\d+\) raised KeyError: 'k'"
    ) as caught:
        _piped(place, KeyError("k"), batch_size)
    assert caught.value.node in str(caught.value)
    assert caught.value.task == "0_0"


def test_errors_without_a_text_are_named_by_their_class():
    class Mute(Pair):
        def deserialize(self, data):
            raise AssertionError

        def serialize(self, value):
            raise KeyError("field")

    for kinds, said in (((Mute, "string"), "does not decode: AssertionError"), (("string", Mute), "does not encode: KeyError: 'field'")):  # fmt: skip
        builder = StreamsBuilder()
        builder.stream("in", Consumed(value_serde=kinds[0])).to("out", Produced(value_serde=kinds[1]))
        with TopologyTestDriver(builder.build(), CONFIG) as driver, pytest.raises(SerializationError, match=said):
            driver.input_topic("in", value_serde="string").pipe("a", "k")


class WrongColumns(Pair):
    """Its columns are lists, or too short."""

    def __init__(self, columns):
        self.columns = columns

    def encode(self, column):
        return self.columns

    def decode(self, data):
        return self.columns


@pytest.mark.parametrize("columns", [["a", "b"], None, pa.array([b"a"], pa.large_binary()), Column.of_items(["a"])])
def test_what_column_methods_return_is_checked(columns):
    serde = Serdes.of(WrongColumns(columns))
    with pytest.raises(
        SerializationError, match=r"what encode\(\) returns, which has to be an Arrow array of 2 values"
    ):
        serde.encode(Column.of_items([("a",), ("b",)]))
    with pytest.raises(SerializationError, match=r"what decode\(\) returns, which has to be a Column of 2 values"):
        serde.decode(pa.array([b"a", b"b"], pa.large_binary()))
