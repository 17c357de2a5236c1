"""Serdes whose methods take topic, headers and data, beside the recorded cases of them in `tests/conformance`."""

import pickle

import pyarrow as pa
import pytest

from penstock import (
    Consumed,
    Materialized,
    Processor,
    Produced,
    Serdes,
    Stores,
    StreamsBuilder,
    TopologyTestDriver,
)
from penstock.config import StreamsConfig
from penstock.errors import PenstockError, SerializationError
from penstock.log.base import RECORD_SCHEMA
from penstock.runtime.context import TaskEnvironment
from penstock.runtime.task import StreamTask, TaskPart, TopicBatch
from penstock.serde import RecordHeaders, Window, Windowed
from penstock.serde.bound_serdes import CurrentHeaders, HeadersSerde, in_task, uses_headers
from penstock.state.maps import MemoryTaskState
from penstock.state.views import ValueTimestampHeaders


class Stamped:
    """Adds a header with topic and text, and reads a text with ``~`` if there is one."""

    def serialize(self, topic, headers, value):
        headers.add("ser", f"{topic}:{value}".encode())
        return value.encode()

    def deserialize(self, topic, headers, data):
        return data.decode() + ("~" if "ser" in headers else "")


class ReadsOnly:
    """Only one of the two looks at headers."""

    def serialize(self, value):
        return value.encode()

    def deserialize(self, topic, headers, data):
        return f"{topic}:{data.decode()}:{len(headers)}"


TEXTS = Consumed(key_serde=str, value_serde=str)
STAMPED = Produced(key_serde=str, value_serde=Stamped)


def sent(driver, topic):
    return [(record.value, [value.decode() for _, value in record.headers]) for record in outputs(driver, topic)]


def outputs(driver, topic):
    return driver.output_topic(topic, "string", "string").read_records_to_list()


def test_a_serde_is_found_by_its_arguments():
    assert isinstance(Serdes.of(Stamped), HeadersSerde)
    assert Serdes.of(Stamped).name.endswith("test_serdes_with_headers.Stamped")
    assert Serdes.of(Stamped) == Serdes.of(Stamped())
    assert uses_headers(Serdes.time_windowed(Serdes.of(Stamped), 5))
    assert not uses_headers(Serdes.list(Serdes.string()))
    half = Serdes.of(ReadsOnly).for_topic("t", "value")
    assert half.deserialize(half.serialize("a")) == "t:a:0"
    assert half.serialize(None) is half.deserialize(None) is None


def test_what_serialize_returns_has_to_be_bytes():
    class Text(Stamped):
        def serialize(self, topic, headers, value):
            return value

    with pytest.raises(SerializationError, match="bytes or None, not str 'a'"):
        Serdes.of(Text).serialize("a")


@pytest.mark.parametrize("header", [("a", "text"), (7, b"")])
def test_wrong_headers_are_refused(header):
    with pytest.raises(PenstockError, match="name of a header is a str, its value bytes or None"):
        RecordHeaders().add(*header)


def test_headers_are_those_of_the_record_and_go_to_all_that_follows_it():
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXTS)
    stream.to("first", STAMPED)
    stream.map_values(str.upper).to("copy", STAMPED)
    stream.to("second", STAMPED)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("in").pipe("a", "k", 0, headers={"h": "x"})
        assert sent(driver, "first") == [("a", ["x", "first:a"])]
        assert sent(driver, "copy") == [("A", ["x", "first:a", "copy:A"])]
        assert sent(driver, "second") == [("a", ["x", "first:a", "second:a"])]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_each_record_of_a_batch_has_its_own(batch_size):
    builder = StreamsBuilder()
    builder.stream("in", Consumed(key_serde=str, value_serde=Stamped)).to("out", STAMPED)
    with TopologyTestDriver(builder.build(), batch_size=batch_size) as driver:
        topic = driver.input_topic("in", "string", "string")
        for number in range(7):
            topic.pipe(str(number), "k", number, headers={"ser": "x"} if number % 2 else None)
        driver.flush()
        expected = [str(number) + "~" * (number % 2) for number in range(7)]
        assert [record.value for record in outputs(driver, "out")] == expected


def test_the_task_says_why_it_goes_record_by_record():
    builder = StreamsBuilder()
    builder.stream("in", TEXTS).to("out", STAMPED)
    with TopologyTestDriver(builder.build()) as driver:
        assert "KSTREAM-SINK-0000000001 reads or writes headers" in (driver._task.sliced_reason or "")


def test_topics_of_the_driver_take_them():
    builder = StreamsBuilder()
    builder.stream("in", TEXTS).to("out", Produced(key_serde=str, value_serde=str))
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("in", "string", Stamped()).pipe("a", "k", 0)
        record = driver.output_topic("out", "string", Stamped()).read_record()
        assert (record.value, record.headers) == ("a~", (("ser", b"in:a"),))


class Forwards(Processor):
    def init(self, context):
        self.context = context
        self.store = context.get_state_store("s")

    def process(self, record):
        self.store.put(record.key, ValueTimestampHeaders(record.value, record.timestamp))
        self.context.forward(record)
        self.context.forward(record.with_value("other"))


def test_processors_and_their_stores_with_headers():
    builder = StreamsBuilder()
    builder.add_state_store(Stores.timestamped_with_headers("s", key_serde=str, value_serde=Stamped))
    builder.stream("in", TEXTS).process(Forwards, stores=["s"]).to("out", STAMPED)
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        driver.input_topic("in").pipe("a", "k", 5)
        assert sent(driver, "out") == [("a", ["out:a"]), ("other", ["out:a", "out:other"])]
        assert driver.store("s").get("k") == ValueTimestampHeaders("a~", 5, (("ser", b"app-s-changelog:a"),))


@pytest.mark.parametrize(
    ("store_format", "headers"),
    [("DEFAULT", ["app-t-changelog:a", "out:a"]), ("HEADERS", ["out:a"])],
)
def test_stores_of_the_dsl(store_format, headers):
    builder = StreamsBuilder()
    table = builder.table("in", Consumed(key_serde=str, value_serde=Stamped), Materialized("t"))
    table.to_stream().to("out", STAMPED)
    config = {"application.id": "app", "dsl.store.format": store_format, "statestore.cache.max.bytes": 0}
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.input_topic("in", "string", "string").pipe("a", "k", 5)
        assert sent(driver, "out") == [("a", headers)]


def test_parts_of_a_list_have_no_headers():
    builder = StreamsBuilder()
    builder.stream("in", TEXTS).map_values(list).to("out", Produced(value_serde=Serdes.list(Stamped())))
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("in").pipe("ab", "k", 0)
        record = driver.output_topic("out", "string", Serdes.list(Serdes.string())).read_record()
        assert (record.value, record.headers) == (["a", "b"], ())


def test_a_pickled_one_has_no_headers():
    serde = in_task(Serdes.of(Stamped), current := CurrentHeaders())
    current.headers.add("ser", b"")
    assert serde.deserialize(b"a") == "a~"
    assert pickle.loads(pickle.dumps(serde)).deserialize(b"a") == "a"


class Passes(Processor):
    def init(self, context):
        self.context = context

    def process(self, record):
        self.context.forward(record)


def test_the_partition_of_a_windowed_key_adds_no_headers():
    builder = StreamsBuilder()
    keys = Serdes.time_windowed(Serdes.of(Stamped), 5)
    stream = builder.stream("in", TEXTS).select_key(lambda key, _: Windowed(key, Window(0, 5)))
    windowed = stream.process(Passes)
    for topic in ("first", "second"):
        windowed.to(topic, Produced(key_serde=keys, value_serde=str))
    settings = StreamsConfig({"application.id": "app"})
    part = TaskPart("0_0", {"first": 2, "second": 2})
    task = StreamTask(builder.build(), settings, part, MemoryTaskState([]), TaskEnvironment(wall_clock_ms=0))
    names = ["offset", "timestamp", "key", "value", "headers"]
    columns = [[0], [0], [b"k"], [b"v"], [None]]
    arrays = [pa.array(column, RECORD_SCHEMA.field(name).type) for column, name in zip(columns, names, strict=True)]
    records = pa.RecordBatch.from_arrays(arrays, schema=pa.schema([RECORD_SCHEMA.field(name) for name in names]))
    output = task.process([TopicBatch("in", 0, records)], 0).records
    of_topics = [[header["value"] for header in output[topic].to_pylist()[0]["headers"]] for topic in output]
    assert of_topics == [[b"first:k"], [b"first:k", b"second:k"]]
