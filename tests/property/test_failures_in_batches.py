"""Records that fail while the handler says to continue: how the input is cut into batches changes nothing, either."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from penstock import (
    Joined,
    JoinWindows,
    Materialized,
    Produced,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from penstock.api.processing.processor import FixedKeyProcessor
from penstock.runtime.dead_letters import DeadLetter, error_headers
from penstock.runtime.exception_handlers import Response
from penstock.testing import TopologyTestDriver

TOPICS = ["a", "b"]
SETTINGS = {"default.key.serde": "string", "default.value.serde": "string", "statestore.cache.max.bytes": 0}


def refuse(*values):
    """Raise if the values together have an exclamation mark and something else that says so."""
    text = "".join(str(value) for value in values if value is not None)
    if text.count("!") % 3 == 1 or text.count("?") % 2 == 1:
        message = f"no {text}"
        raise ValueError(message)


def joining(left, right):
    refuse(left, right)
    return f"{left}|{right}"


def adding(_key, value, so_far):
    refuse(value, so_far)
    return f"{so_far}{value}"[-7:]


def mapping(value):
    refuse(value)
    return f"<{value}>"


def merging(_key, one, other):
    refuse(one, other)
    return f"{one}&{other}"[-7:]


def hopping(builder, a, b):
    windows = TimeWindows.of("90 ms", grace="40 ms").advance_by("30 ms")
    return a.merge(b).group_by_key().windowed_by(windows).aggregate(str, adding).to_stream()


def tumbling(builder, a, b):
    windows = TimeWindows.of("90 ms", grace="40 ms")
    return a.merge(b).group_by_key().windowed_by(windows).aggregate(str, adding).to_stream()


def sliding(builder, a, b):
    return a.group_by_key().windowed_by(SlidingWindows.of("50 ms", grace="40 ms")).aggregate(str, adding).to_stream()


def sessions(builder, a, b):
    windows = SessionWindows.of("40 ms", grace="40 ms")
    return a.group_by_key().windowed_by(windows).aggregate(str, adding, merging).to_stream()


def cogroups(builder, a, b):
    windows = TimeWindows.of("90 ms", grace="40 ms").advance_by("45 ms")
    groups = a.group_by_key().cogroup(adding).cogroup(b.group_by_key(), adding)
    return groups.windowed_by(windows).aggregate(str).to_stream()


def streams_join(kind):
    def build(builder, a, b):
        windows = JoinWindows.of("60 ms", grace="20 ms")
        return getattr(a.map_values(mapping), kind)(b, joining, windows)

    build.__name__ = f"streams_{kind}"
    return build


def self_join(builder, a, b):
    return a.join(a, joining, JoinWindows.of("60 ms", grace="20 ms"))


def stream_table_join(builder, a, b):
    return a.map_values(mapping).left_join(b.to_table(), joining)


def join_with_a_derived_table(builder, a, b):
    return a.join(b.to_table().map_values(mapping), joining)


def join_of_records_that_wait(builder, a, b):
    table = b.to_table(Materialized("t", history="1 minute"))
    return a.join(table, joining, Joined(grace="40 ms"))


def tables_join(kind):
    def build(builder, a, b):
        one, other = a.to_table(), b.to_table().map_values(mapping)
        return getattr(one, kind)(other, joining).to_stream()

    build.__name__ = f"tables_{kind}"
    return build


def suppressed(builder, a, b):
    windows = TimeWindows.of("50 ms", grace="10 ms")
    closed = a.group_by_key().windowed_by(windows).aggregate(str, adding).suppress(Suppressed.until_window_closes())
    return closed.map_values(mapping).to_stream()


def flattened(builder, a, b):
    def parts(value):
        for letter in value or "":
            refuse(letter)
            yield letter

    return a.flat_map_values(parts).merge(b.peek(mapping)).filter(lambda value: value != "x")


def several_sinks(builder, a, b):
    mapped = a.merge(b).map_values(str)
    mapped.to(lambda _key, value: mapping(value) and "elsewhere")
    mapped.to("partitioned", Produced(partitioner=lambda topic, key, value, count: refuse(value)))
    return mapped


def unencodable(builder, a, b):
    """Values that the serde of the store does not take."""
    counted = Materialized(value_serde="integer")
    lengths = (
        a.merge(b)
        .group_by_key()
        .aggregate(lambda: 0, lambda _key, value, total: total + (10**12 if "!" in value else 1), counted)
    )
    return lengths.to_stream().map_values(str)


class Numbering(FixedKeyProcessor):
    """Numbers records by what it remembers."""

    def init(self, context):
        super().init(context)
        self.seen = 0

    def process(self, record):
        self.seen += 1
        refuse(record.value)
        self.context.forward(record.with_value(f"{self.seen}{record.value}"))


def behind_a_processor(builder, a, b):
    return a.process_values(Numbering).join(b, joining, JoinWindows.of("60 ms", grace="20 ms"))


SHAPES = [
    hopping,
    tumbling,
    sliding,
    sessions,
    cogroups,
    *map(streams_join, ("join", "left_join", "outer_join")),
    self_join,
    stream_table_join,
    join_with_a_derived_table,
    join_of_records_that_wait,
    *map(tables_join, ("join", "left_join", "outer_join")),
    suppressed,
    flattened,
    several_sinks,
    unencodable,
    behind_a_processor,
]
RECORD = st.tuples(
    st.sampled_from("aab"),
    st.sampled_from(["k", "k", "l"]),
    st.sampled_from(["x", "y", "z", "!", "!", "?", None]),
    st.integers(0, 40),
    st.booleans(),
)
RECORDS = st.lists(RECORD, max_size=30)


def topology_of(shape):
    builder = StreamsBuilder()
    a, b = map(builder.stream, TOPICS)
    shape(builder, a, b).map_values(lambda value: value).to("out", Produced(key_serde="json", value_serde="json"))
    return builder.build({"topology.optimization": "all"})


class Run:
    """What came of records, fed in batches of a size."""

    def __init__(self, topology, records, size):
        self.asked = []
        config = {
            **SETTINGS,
            "processing.exception.handler": self.handler,
            "production.exception.handler": self.handler,
        }
        with TopologyTestDriver(topology, config, batch_size=size) as driver:
            for topic, key, value, time in records:
                driver.pipe_raw(topic, key.encode(), None if value is None else value.encode(), time)
            driver.flush()
            self.written = {topic: everything(driver, topic) for topic in driver.produced_topic_names()}
            self.dropped = driver.dropped_records
            self.stores = {name: list(driver._task._state.map(name).scan()) for name in topology.stores}
            for name, spec in topology.stores.items():
                if spec.kind == "record_buffer":  # rows end with a number: of all, or of those that wait behind a batch
                    self.stores[name] = [(row[:-4], value) for row, value in self.stores[name]]

    def handler(self, context, record, error):
        value = getattr(record, "value", None)
        self.asked.append((context.node, context.topic, context.offset, context.timestamp, str(value), str(error)))
        letter = DeadLetter("dead", context.raw_key, context.raw_value, context.timestamp, self.headers(context, error))
        return Response.resume([letter])

    @staticmethod
    def headers(context, error):
        return tuple(one for one in error_headers(context, error) if not one[0].endswith("stacktrace"))


def everything(driver, topic):
    """All records of a topic."""
    found = []
    while (record := driver.read_raw(topic)) is not None:
        found.append(record)
    return found


def timed(records):
    """The records with times that mostly go on."""
    now, found = 100, []
    for topic, key, value, step, back in records:
        now += 0 if back else step
        found.append((topic, key, value, now - step if back else now))
    return found


def test_a_record_that_leaves_within_its_batch_and_one_that_waits():
    """Alone the first one waits, too, so that the second one has another number."""
    topology = topology_of(join_of_records_that_wait)
    records = [("a", "k", "x", 100), ("b", "k", "x", 140), ("a", "k", "x", 180)]
    expected, actual = Run(topology, records, 1), Run(topology, records, 1000)
    assert actual.written == expected.written
    assert actual.stores == expected.stores
    assert sum(map(len, actual.stores.values())) == 2  # the table's, and what waits


def searched(most):
    """Settings of a search that draws the same every time."""
    return settings(
        max_examples=examples(most),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_records_that_fail(shape):
    topology = topology_of(shape)

    @given(RECORDS, st.integers(2, 9))
    @searched(25)
    def search(drawn, size):
        records = timed(drawn)
        expected = Run(topology, records, 1)
        for batches in (size, 1000):
            actual = Run(topology, records, batches)
            assert actual.written == expected.written
            assert actual.stores == expected.stores
            assert actual.dropped == expected.dropped
            assert Counter(actual.asked) == Counter(expected.asked)

    search()


def foreign_keys(kind):
    """A join by foreign key, beside windows at which records fail."""
    builder = StreamsBuilder()
    a, b = map(builder.stream, TOPICS)
    windows = TimeWindows.of("90 ms", grace="40 ms").advance_by("30 ms")
    a.group_by_key().windowed_by(windows).aggregate(str, adding).to_stream().to("windows", Produced(key_serde="json"))

    left = a.filter(lambda value: value != "z").to_table()
    joined = getattr(left, kind)(
        b.to_table(), lambda one, other: f"{one}|{other}", foreign_key={"x": "k", "y": "l", "!": "k"}.get
    )
    joined.to_stream().to("out")
    return builder.build()


@pytest.mark.parametrize("kind", ["join", "left_join"])
def test_a_join_by_foreign_key_in_a_batch_that_fails_elsewhere(kind):
    """Answers come a batch later than alone: what is left in the end is the same."""
    topology = foreign_keys(kind)

    @given(st.lists(RECORD, min_size=20, max_size=30), st.integers(2, 9))
    @searched(15)
    def search(drawn, size):
        records = timed(drawn)
        expected = last_values(Run(topology, records, 1))
        for batches in (size, 1000):
            assert last_values(Run(topology, records, batches)) == expected

    search()


def last_values(run):
    """The newest value of each key that has one."""
    newest = {record.key: record.value for record in run.written.get("out", ())}
    return {key: value for key, value in newest.items() if value is not None}
