"""Records that fail when an operator has done part of its work: they are left out, alone and in batches."""

from __future__ import annotations

import pytest
from task_support import STRING, batch, task, written

from penstock import (
    Joined,
    JoinWindows,
    Materialized,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
)
from penstock.runtime.exception_handlers import Response

CONTINUE = {"processing_exception_handler": "continue"}
SERDES = {"default_key_serde": STRING, "default_value_serde": STRING}
TOO_LARGE = 10**12  # for the integer serde


def of(builder, **settings):
    return task(builder.build(), **SERDES, **settings)


def joined(**settings):
    builder = StreamsBuilder()
    rights = builder.stream("r").map_values(int)
    serdes = StreamJoined(value_serde="string", other_value_serde="integer")
    windows = JoinWindows.of("10 seconds", grace=0)
    builder.stream("l").join(rights, lambda left, right: f"{left}{right}", windows, joined=serdes).to("out")
    return of(builder, **settings)


def rights_of(numbers):
    return [(b"k", str(number).encode(), 100 + i) for i, number in enumerate(numbers)]


def values(output):
    return [value for _, value, _ in written(output)] if "out" in output.records else []


@pytest.mark.parametrize("cache", [0, 1_000_000])
def test_a_record_that_a_join_cannot_store_does_not_touch_those_behind_it(cache):
    running = joined(**CONTINUE, statestore_cache_max_bytes=cache)
    running.process([batch([(b"k", b"L", 90)], "l")], 0)
    found = []
    for i, record in enumerate(rights_of([1, 2, TOO_LARGE, 4, 5])):
        found.append(values(running.process([batch([record], "r", first=i)], 0)))
    assert found == [[b"L1"], [b"L2"], [b"L1000000000000"], [b"L4"], [b"L5"]]
    assert running.dropped_records == 1
    again = running.process([batch([(b"k", b"M", 110)], "l", first=1)], 0)
    assert values(again) == [b"M1", b"M2", b"M4", b"M5"]


@pytest.mark.parametrize("lefts", [1, 2])
def test_a_batch_leaves_out_the_record_that_a_join_cannot_store(lefts):
    asked = []

    def handler(context, error):
        asked.append((context.topic, context.offset, str(error)))
        return "continue"

    running = joined(processing_exception_handler=handler)
    numbers = [TOO_LARGE if i == 25 else i for i in range(50)]
    left = [(b"k", b"L", 90), (b"z", b"L", 95)][:lefts]
    output = running.process([batch(left, "l"), batch(rights_of(numbers), "r")], 0)
    assert values(output) == [f"L{number}".encode() for number in numbers]  # joined first, as alone
    ((topic, offset, said),) = asked
    assert (topic, offset) == ("r", 25)
    assert "the integer serde" in said
    again = running.process([batch([(b"k", b"M", 150)], "l", first=2)], 0)
    assert values(again) == [f"M{number}".encode() for number in numbers if number != TOO_LARGE]
    assert running.dropped_records == 1


@pytest.mark.parametrize("cache", [0, 1_000_000])
def test_an_aggregate_that_does_not_encode_leaves_out_its_record_alone_and_in_a_batch(cache):
    builder = StreamsBuilder()
    sums = builder.stream("in").group_by_key()
    sums = sums.aggregate(lambda: 0, lambda _key, value, total: total + int(value), Materialized(value_serde="integer"))
    sums.to_stream().map_values(str).to("out")
    records = [(b"a", b"1", 1), (b"b", b"1", 2), (b"a", str(TOO_LARGE).encode(), 3), (b"b", b"1", 4)]
    alone = of(builder, **CONTINUE, statestore_cache_max_bytes=cache)
    found = [values(alone.process([batch([one], first=i)], 0)) for i, one in enumerate(records)]
    assert found == [[b"1"], [b"1"], [], [b"2"]]
    together = of(builder, **CONTINUE, statestore_cache_max_bytes=cache)
    assert values(together.process([batch(records)], 0)) == [b"1", b"1", b"2"]
    assert together.dropped_records == 1


def outer_join(kind):
    builder = StreamsBuilder()
    join = getattr(builder.stream("in"), kind)
    join(builder.stream("r"), lambda left, right: f"{left}{right}", JoinWindows.of(100, grace=10)).to("out")
    return builder


def join_with_grace():
    builder = StreamsBuilder()
    table = builder.table("r", materialized=Materialized("table", history="1 minute"))
    stream = builder.stream("in")
    stream.join(table, lambda left, right: f"{left}{right}", Joined(grace="1 second")).to("out")
    return builder


@pytest.mark.parametrize("builder", [outer_join("left_join"), outer_join("outer_join"), join_with_grace()])
def test_a_handler_that_goes_on_leaves_joins_of_records_that_wait_by_column(builder):
    assert of(builder, **CONTINUE).sliced_reason is None


def suppressed(**settings):
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().windowed_by(SessionWindows.of(1_000, grace=0)).count()
    counts = counts.suppress(Suppressed.until_window_closes())
    counts.to_stream().map(lambda key, count: (key.key, str(10 // (count - 3)))).to("out")
    return of(builder, statestore_cache_max_bytes=0, **settings)


@pytest.mark.parametrize("size", [1, 7, 100])
def test_the_bytes_of_changes_that_have_left_a_buffer_are_let_go(size):
    """Sessions that grow: the older ones leave as deletes, of which nothing is sent on."""
    running = suppressed(errors_dead_letter_queue_topic_name="dead")
    records = [(b"k", b"x", 10 * i) for i in range(300)]
    for first in range(0, len(records), size):
        running.process([batch(records[first : first + size], first=first)], 0)
    (operator,) = [one for one in running._operators.values() if hasattr(one, "_raw")]
    assert len(operator._raw._by_key) <= operator._buffer.records < 300


@pytest.mark.parametrize("size", [1, 3, 9, 90])
def test_dead_letters_behind_a_buffer_have_the_bytes_of_the_record_that_waited(size):
    """Three sessions of a key, one behind the other: the second, of three records, fails when it leaves."""
    seen = []

    def handler(context, error):
        seen.append((context.offset, context.raw_key, context.raw_value))
        return Response.resume()

    running = suppressed(processing_exception_handler=handler)
    times = [0, 10_000, 10_001, 10_002, 30_000, 30_001, 60_000]
    more = [(f"o{i}".encode(), b"more", 70_000 + i) for i in range(80)]  # enough for whole columns
    records = [(b"k", f"v{i}".encode(), time) for i, time in enumerate(times)] + more
    for first in range(0, len(records), size):
        running.process([batch(records[first : first + size], first=first)], 0)
    assert seen == [(3, b"k", b"v3")]


def test_a_key_that_waits_anew_in_the_batch_in_which_it_left_has_the_bytes_of_both():
    builder = StreamsBuilder()
    table = builder.table("in").suppress(Suppressed.until_time_limit(50))
    table.to_stream().map_values(lambda value: str(int(value))).to("out")
    seen = []

    def handler(context, error):
        seen.append((context.offset, context.raw_value))
        return "continue"

    running = of(builder, statestore_cache_max_bytes=0, processing_exception_handler=handler)
    running.process([batch([(b"k", b"bad", 0), (b"o", b"1", 1)])], 0)
    running.process(
        [batch([(b"o", b"2", 60), (b"k", b"worse", 61), (b"o", b"3", 120), (b"k", b"worst", 121)], first=2)], 0
    )
    running.process([batch([(b"o", b"4", 200)], first=6)], 0)
    assert seen == [(0, b"bad"), (3, b"worse"), (5, b"worst")]
