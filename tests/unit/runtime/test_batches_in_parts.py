"""Batches in which records fail: what has been done by column is taken back, and nobody counts or asks twice."""

from __future__ import annotations

from collections import Counter

import pytest
from task_support import STRING, batch, task, written

from penstock import JoinWindows, Produced, StreamsBuilder, TimeWindows
from penstock.api.processing.processor import FixedKeyProcessor
from penstock.runtime.sensor import Sensor

SERDES = {"default_key_serde": STRING, "default_value_serde": STRING, "statestore_cache_max_bytes": 0}


class Figures(Sensor):
    """Adds up what a task reports."""

    def __init__(self):
        self.counts = Counter()

    def on_node(self, task_id, node, rows_in, rows_out, seconds):
        self.counts["in", node] += rows_in
        self.counts["out", node] += rows_out

    def on_produced(self, task_id, node, topic, size):
        self.counts["produced", node] += size.records

    def on_completed(self, task_id, node, timestamps):
        self.counts["completed", node] += len(timestamps)

    def on_dropped(self, task_id, node, count, why):
        self.counts["dropped", node, why] += count

    def on_error(self, task_id, node, error, action):
        self.counts["error", node, action] += 1


class Handler:
    """Says to continue, and knows what it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, context, record, error):
        self.asked.append((context.node, context.offset, record.key, str(record.value), str(error)))
        return "continue"


def hopping():
    """Four windows for a record, of which the third refuses what it holds by then."""
    builder = StreamsBuilder()
    windows = TimeWindows.of("40 ms", grace=0).advance_by("10 ms")

    def add(_key, value, so_far):
        if value == "!" and so_far == "?":
            message = f"after {so_far}"
            raise ValueError(message)
        return so_far + value

    builder.stream("in").group_by_key().windowed_by(windows).aggregate(str, add).to_stream(
        lambda key, _value: f"{key.key}@{key.window.start}"
    ).to("out")
    return builder


def joined():
    builder = StreamsBuilder()

    def join(left, right):
        if "!" in left + right and "b" in left + right:
            message = f"{left} and {right}"
            raise ValueError(message)
        return left + right

    stream = builder.stream("in").map_values(lambda value: value if value != "?" else 1 / 0)
    stream.left_join(stream.filter(lambda value: value > "a"), join, JoinWindows.of("40 ms", grace=0)).to("out")
    return builder


RECORDS = [
    (key, value.encode(), 100 + 10 * time)
    for time, (key, value) in enumerate(
        [
            (b"k", "a"),
            (b"l", "a"),
            (b"k", "b"),
            (b"k", "?"),
            (b"k", "!"),
            (b"l", "!"),
            (b"k", "c"),
            (b"k", "!"),
            (b"l", "b"),
        ]
    )
]


def outcome(builder, size):
    figures, handler = Figures(), Handler()
    running = task(builder.build(), sensor=figures, processing_exception_handler=handler, **SERDES)
    assert running.sliced_reason is None
    out = []
    for first in range(0, len(RECORDS), size):
        out += written(running.process([batch(RECORDS[first : first + size], first=first)], 0))
    return out, figures.counts, handler.asked, running.dropped_records


@pytest.mark.parametrize("topology", [hopping, joined])
@pytest.mark.parametrize("size", [2, 3, 5, 9])
def test_a_batch_is_its_records(topology, size):
    alone = outcome(topology(), 1)
    assert alone[2], "records fail"
    assert outcome(topology(), size) == alone


def test_what_a_window_refuses_leaves_those_before_it_and_not_those_behind():
    out, _, asked, _ = outcome(hopping(), 9)
    starts = {
        name: [key for key, value, _ in out if value.endswith(b"!") and key.startswith(name)] for name in (b"k", b"l")
    }
    assert starts[b"k"] == [b"k@110", b"k@120", b"k@140", b"k@150", b"k@160", b"k@170"]  # 130 refuses: no 140 of that
    assert starts[b"l"] == [b"l@120", b"l@130", b"l@140", b"l@150"]
    assert [(offset, key, value) for _, offset, key, value, _ in asked] == [(4, "k", "!")]


class Counting(FixedKeyProcessor):
    """Remembers how many records it has seen."""

    def init(self, context):
        super().init(context)
        self.seen = 0

    def process(self, record):
        self.seen += 1
        self.context.forward(record.with_value(f"{record.value}{self.seen}"))


def test_a_processor_that_may_remember_records_sees_none_twice():
    builder = StreamsBuilder()
    windows = TimeWindows.of("40 ms", grace=0).advance_by("10 ms")
    counted = builder.stream("in").process_values(Counting)
    counted.group_by_key().windowed_by(windows).reduce(lambda one, other: str(int(one + other))).to_stream().to("out")
    topology = builder.build()
    reason = task(topology, processing_exception_handler="continue", **SERDES).sliced_reason
    assert reason is not None
    assert "KSTREAM-PROCESSVALUES-0000000001 may remember the batch" in reason
    assert task(topology, **SERDES).sliced_reason is None


def test_a_processor_before_operators_that_only_leave_a_record_out_works_by_column():
    builder = StreamsBuilder()
    counted = builder.stream("in").process_values(Counting).map_values(int)
    counted.group_by_key().count().to_stream().to("out")
    assert task(builder.build(), processing_exception_handler="continue", **SERDES).sliced_reason is None


def refusing(value):
    if value == "!":
        raise ValueError(value)
    return value


def refused_twice():
    """Two windows that refuse different records, behind a join whose store drops what is too old."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.join(builder.stream("other"), lambda one, other: one + other, JoinWindows.of("40 ms", grace=0)).to("joined")
    windows = TimeWindows.of("40 ms", grace="1 day").advance_by("10 ms")
    for topic, refused in (("first", "!"), ("second", "?")):
        changes = stream.map_values(lambda value, refused=refused: "!" if value == refused else "x")
        sums = changes.group_by_key().windowed_by(windows).aggregate(str, lambda _key, value, _sum: refusing(value))
        sums.to_stream(lambda key, _value: key.key).to(topic)
    return builder.build()


@pytest.mark.parametrize("size", [2, 3, 6])
def test_what_stores_drop_in_an_earlier_part_is_counted_though_a_later_one_is_taken_back(size):
    values = [(b"x", 1_000_000), (b"x", 100), (b"!", 1_000_010), (b"x", 200), (b"?", 1_000_020), (b"x", 1_000_030)]
    figures = Figures()
    running = task(refused_twice(), sensor=figures, processing_exception_handler="continue", **SERDES)
    records = [(b"k", value, time) for value, time in values]
    for first in range(0, len(records), size):
        running.process([batch(records[first : first + size], first=first)], 0)
    late = {node: count for (kind, node, *why), count in figures.counts.items() if why == ["too old for the store"]}
    assert list(late.values()) == [2]
    assert running.dropped_records == 4


def idle_beside_windows():
    builder = StreamsBuilder()
    closed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of("100 ms", grace=0))
    closed = closed.emit_strategy("on_window_close", idle="1 s").count().map_values(str)
    by_value = Produced(partitioner=lambda _topic, _key, value, _count: refusing("!" if value == "3" else value) and 0)
    closed.to_stream(lambda key, _value: key.key).to("out", by_value)
    windows = TimeWindows.of("40 ms", grace=0).advance_by("10 ms")
    sums = builder.stream("other").group_by_key().windowed_by(windows)
    sums.aggregate(str, lambda _key, value, _sum: refusing(value)).to_stream(lambda key, _value: key.key).to("sums")
    return builder.build()


def test_windows_are_not_idle_in_a_part_if_their_record_is_in_a_later_one():
    running = task(idle_beside_windows(), processing_exception_handler="continue", **SERDES)
    running.process([batch([(b"k", b"x", 100)])], 0)
    others = [(b"k", b"x", 110), (b"k", b"!", 120), (b"k", b"x", 130)]
    output = running.process([batch(others, "other"), batch([(b"k", b"x", 150)], first=1)], 5_000)
    assert written(output) == []
    assert [value for _, value, _ in written(running.process([], 9_000))] == [b"2"]
    assert running.dropped_records == 1  # the one that is refused


@pytest.mark.parametrize("depth_first", [False, True])
def test_the_handler_is_asked_about_a_window_that_time_alone_has_closed(depth_first):
    handler = Handler()
    running = task(idle_beside_windows(), {"out": 2}, processing_exception_handler=handler, **SERDES)
    running.process([batch([(b"k", b"x", 100), (b"l", b"x", 100), (b"k", b"x", 101), (b"k", b"x", 102)])], 0)
    output = running.process([], 5_000, depth_first=depth_first)
    assert [(key, value) for key, value, _ in written(output)] == [(b"l", b"1")]
    assert [(key, value) for _, _, key, value, _ in handler.asked] == [("k", "3")]
    assert written(running.process([], 9_000, depth_first=depth_first)) == []
    assert len(handler.asked) == 1
