from __future__ import annotations

import polars as pl
import pytest
from task_support import STRING, batch, chain, function, task, topology, written

from penstock.api.processing.processor import Processor
from penstock.errors import ProcessingError, SerializationError, TopologyError
from penstock.runtime.exception_handlers import Response
from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode
from penstock.topology.operations.definitions import (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    MapPairs,
    MapValues,
    PassThrough,
    Process,
    SelectKey,
)
from penstock.topology.operations.functions import Function
from penstock.topology.stores import StoreSpec

THREE = [(b"a", b"1", 10), (b"b", b"x", 20), (b"c", b"3", 30)]


def test_partitions_merge_by_the_smallest_head_and_keep_their_own_order():
    out = task(chain(PassThrough(), sources=("x", "y"))).process(
        [
            batch([(b"y0", b"", 5), (b"y1", b"", 1), (b"y2", b"", 9)], "y"),
            batch([(b"x0", b"", 5), (b"x1", b"", 7), (b"x2", b"", 6)], "x"),
            batch([(b"p0", b"", 6)], "x", partition=1),
        ],
        0,
    )
    assert [k.decode() for k, _, _ in written(out)] == ["x0", "y0", "y1", "p0", "x1", "x2", "y2"]


def test_ordered_input_is_not_merged():
    parts = [batch([(b"late", b"", 9)], "x"), batch([(b"early", b"", 1)], "y"), batch([(b"x1", b"", 2)], "x", first=1)]
    out = task(chain(PassThrough(), sources=("x", "y"))).process(parts, 0, ordered=True)
    assert [k for k, _, _ in written(out)] == [b"late", b"early", b"x1"]


def test_rows_of_forks_come_in_depth_first_order():
    built = topology(
        SourceNode("s", ("in",), STRING, STRING),
        ProcessorNode("words", FlatMapValues(function(str.split, 1)), ("s",)),
        ProcessorNode("up", MapValues(function(str.upper, 1)), ("words",)),
        ProcessorNode("down", PassThrough(), ("words",)),
        ProcessorNode("both", PassThrough(), ("up", "down")),
        SinkNode("sink", "out", STRING, STRING, ("both", "down")),
    )
    out = task(built).process([batch([(b"k", b"a b", 1), (b"k", b"c", 2)])], 0)
    assert [v for _, v, _ in written(out)] == [b"A", b"a", b"a", b"B", b"b", b"b", b"C", b"c", b"c"]


def test_a_bad_record_fails_the_batch_with_everything_one_needs_to_know():
    with pytest.raises(ProcessingError, match=r"n0: .*lambda.* raised ValueError: .*'x'.*in-0 offset 1") as caught:
        task(chain(MapValues(function(lambda v: str(int(v)), 1)))).process([batch(THREE)], 0)
    error = caught.value
    assert (error.node, error.offset, error.record["value"]) == ("n0", 1, "x")
    assert error.file == __file__
    assert error.line > 0


def test_continue_skips_the_bad_record_only():
    running = task(chain(MapValues(function(lambda v: str(int(v)), 1))), processing_exception_handler="continue")
    out = running.process([batch(THREE)], 0)
    assert [v for _, v, _ in written(out)] == [b"1", b"3"]
    assert out.metrics["dropped"] == running.dropped_records == 1


def test_continue_skips_the_bad_record_of_an_expression():
    strict = Filter(function(pl.col("value").cast(pl.Int64) > 0))
    running = task(chain(strict), processing_exception_handler="continue")
    assert [v for _, v, _ in written(running.process([batch(THREE)], 0))] == [b"1", b"3"]


def test_dead_letters_carry_the_source_record_and_the_reason():
    settings = {
        "processing_exception_handler": "continue",
        "errors_dead_letter_queue_topic_name": "dead",
    }
    running = task(chain(MapValues(function(lambda v: str(int(v)), 1))), {"dead": 3}, **settings)
    records = [(b"a", b"1", 10), (b"b", b"x", 20, [("h", b"1")])]
    letter = running.process([batch(records)], 0).records["dead"].to_pylist()[0]
    headers = {h["key"]: h["value"] for h in letter["headers"]}
    assert (letter["key"], letter["value"], letter["timestamp"]) == (b"b", b"x", 20)
    assert headers["h"] == b"1"
    assert headers["__streams.errors.exception"] == b"builtins.ValueError"
    assert headers["__streams.errors.topic"] == b"in"
    assert (headers["__streams.errors.partition"], headers["__streams.errors.offset"]) == (b"0", b"1")
    assert b"invalid literal" in headers["__streams.errors.message"]
    assert b"Traceback" in headers["__streams.errors.stacktrace"]


def test_bytes_that_do_not_decode():
    records = [(b"a", b"ok", 1), (b"b", b"\xff\xfe", 2), (b"c", b"fine", 3)]
    with pytest.raises(SerializationError, match="in-0 offset 1 does not decode"):
        task(chain(PassThrough())).process([batch(records)], 0)
    running = task(chain(PassThrough()), deserialization_exception_handler="continue")
    out = running.process([batch(records)], 0)
    assert [v for _, v, _ in written(out)] == [b"ok", b"fine"]
    assert running.dropped_records == 1


def test_values_that_do_not_encode():
    built = chain(MapValues(function(lambda v: "\ud800" if v == "x" else v, 1)))
    with pytest.raises(SerializationError, match="topic 'out' does not encode"):
        task(built).process([batch(THREE)], 0)
    out = task(built, production_exception_handler="continue").process([batch(THREE)], 0)
    assert [v for _, v, _ in written(out)] == [b"1", b"3"]


@pytest.mark.parametrize("depth_first", [False, True])
def test_values_of_a_wrong_type_are_an_error_of_the_operator_above(depth_first):
    built = chain(MapValues(function(lambda v: 5 if v == "x" else v, 1)))
    running = task(built, production_exception_handler="continue")
    with pytest.raises(SerializationError, match="topic 'out' does not encode"):
        running.process([batch(THREE)], 0, depth_first=depth_first)
    running = task(built, processing_exception_handler="continue")
    out = running.process([batch(THREE)], 0, depth_first=depth_first)
    assert [v for _, v, _ in written(out)] == [b"1", b"3"]
    assert running.dropped_records == 1


def test_a_handler_of_ones_own():
    seen = []

    def handler(context, error):
        seen.append((context.node, context.offset, type(error)))
        return Response("continue")

    running = task(
        chain(MapValues(function(int, 1)), MapValues(function(str, 1))), processing_exception_handler=handler
    )
    assert len(written(running.process([batch(THREE)], 0))) == 2
    assert seen == [("n0", 1, ValueError)]


def test_timestamp_extractor_gets_the_partition_time_and_may_drop():
    def extract(record, partition_time):
        return int(record.value) if record.value != "-" else partition_time

    extractor = Function.wrap(extract, verb="test", allowed=(1, 2))
    built = topology(
        SourceNode("s", ("in",), STRING, STRING, timestamp_extractor=extractor),
        SinkNode("sink", "out", STRING, STRING, ("s",)),
    )
    running = task(built)
    first = running.process([batch([(None, b"-", 1), (None, b"7", 1), (None, b"5", 1)])], 0)
    second = running.process([batch([(None, b"-", 1)], first=3)], 0)
    assert [t for _, _, t in written(first)] == [7, 5]
    assert [t for _, _, t in written(second)] == [7]
    assert running.dropped_records == 1


def test_a_negative_timestamp_is_refused():
    with pytest.raises(ProcessingError, match="invalid timestamp -1"):
        task(chain(PassThrough())).process([batch([(b"a", b"", -1)])], 0)


def test_maps_by_call_and_by_expression():
    pairs = pl.struct(key=pl.col("value"), value=pl.col("key"))
    for swap in (lambda k, v: (v, k), pairs):
        out = task(chain(MapPairs(function(swap, 2)))).process([batch(THREE)], 0)
        assert [(k, v) for k, v, _ in written(out)] == [(b"1", b"a"), (b"x", b"b"), (b"3", b"c")]
    for explode in (str.split, pl.col("value").str.split(" ")):
        out = task(chain(FlatMapValues(function(explode, 1)))).process([batch([(b"k", b"a b", 1)])], 0)
        assert [v for _, v, _ in written(out)] == [b"a", b"b"]
    out = task(chain(FlatMap(function(lambda k, v: [(v, k)] * 2, 2)))).process([batch(THREE[:1])], 0)
    assert [(k, v) for k, v, _ in written(out)] == [(b"1", b"a")] * 2
    for literal in (lambda v: "same", pl.lit("same")):
        out = task(chain(SelectKey(function(literal)))).process([batch(THREE)], 0)
        assert {k for k, _, _ in written(out)} == {b"same"}


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (MapPairs(function(lambda k, v: v, 2)), "must return a .key, value. pair"),
        (FlatMapValues(function(lambda v: "text", 1)), "must return an iterable"),
        (
            MapValues(function(pl.reduce(lambda a, _: a.head(1), [pl.col("value"), pl.col("value")]))),
            "made 1 values of 3 records",
        ),
        (MapValues(function(pl.col("nothing"))), "nothing"),
        (MapValues(function(lambda v: next(iter(())), 1)), "StopIteration"),
    ],
)
def test_functions_that_return_the_wrong_thing(operation, message):
    with pytest.raises(ProcessingError, match=message):
        task(chain(operation)).process([batch(THREE)], 0)


def test_branch_sends_each_record_to_its_first_match():
    branch = Branch((function(lambda v: v < "2", 1), function(pl.col("value") < "5")), ("low", "middle"), "rest")
    built = topology(
        SourceNode("s", ("in",), STRING, STRING),
        ProcessorNode("b", branch, ("s",)),
        *(ProcessorNode(n, PassThrough(), ("b",)) for n in ("low", "middle", "rest")),
        *(SinkNode(f"{n}-sink", n, STRING, STRING, (n,)) for n in ("low", "middle", "rest")),
    )
    out = task(built).process([batch(THREE)], 0)
    assert {n: [v for _, v, _ in written(out, n)] for n in ("low", "middle", "rest")} == {
        "low": [b"1"],
        "middle": [b"3"],
        "rest": [b"x"],
    }


def test_partitions_by_murmur2_by_ones_own_function_and_unknown():
    out = task(chain(PassThrough()), {"out": 3}).process([batch(THREE)], 0)
    assert set(out.records["out"].column("partition").to_pylist()) <= {0, 1, 2}
    out = task(chain(PassThrough())).process([batch(THREE)], 0)
    assert set(out.records["out"].column("partition").to_pylist()) == {-1}
    mine = Function.wrap(lambda topic, key, value, count: count - 1, verb="test", allowed=(4, 5))
    out = task(chain(PassThrough(), partitioner=mine), {"out": 3}).process([batch(THREE)], 0)
    assert set(out.records["out"].column("partition").to_pylist()) == {2}
    bad = Function.wrap(lambda topic, key, value, count: 7, verb="test", allowed=(4, 5))
    with pytest.raises(SerializationError, match="partition 7"):
        task(chain(PassThrough(), partitioner=bad), {"out": 3}).process([batch(THREE)], 0)


def test_topics_by_function():
    to = Function.wrap(lambda key, value, context: f"{context.topic}-{value}", verb="to", allowed=(2, 3))
    out = task(chain(PassThrough(), sink=None, topic_fn=to)).process([batch(THREE)], 0)
    assert sorted(out.records) == ["in-1", "in-3", "in-x"]


def test_an_unknown_topic_is_named_with_the_known_ones():
    with pytest.raises(TopologyError, match="no source of this task reads topic 'other'"):
        task(chain(PassThrough())).process([batch(THREE, "other")], 0)


class Counting(Processor):
    def init(self, context):
        super().init(context)
        self.store = context.get_state_store("counts")

    def process(self, record):
        count = (self.store.get(record.key) or "") + "i"
        self.store.put(record.key, count)
        self.context.forward(record.with_value(count).with_header("n", b"1"))


def test_a_shared_store_makes_the_task_go_record_by_record():
    store = StoreSpec("counts", "key_value", STRING, STRING)
    built = chain(Process(Counting, ("counts",)), Process(Counting, ("counts",)), stores=[store])
    running = task(built)
    assert "counts" in running.sliced_reason
    out = running.process([batch([(b"a", b"", 1), (b"a", b"", 2)])], 0)
    assert [v for _, v, _ in written(out)] == [b"ii", b"iiii"]
    alone = task(chain(Process(Counting, ("counts",)), stores=[store]))
    assert alone.sliced_reason is None
    out = alone.process([batch([(b"a", b"", 1), (b"a", b"", 2)])], 0)
    assert [v for _, v, _ in written(out)] == [b"i", b"ii"]
    assert out.records["out"].column("headers").to_pylist() == [[{"key": "n", "value": b"1"}]] * 2


def test_no_access_to_a_store_that_is_not_connected():
    store = StoreSpec("counts", "key_value", STRING, STRING)
    with pytest.raises(TopologyError, match="no access to a state store 'counts'"):
        task(chain(Process(Counting), stores=[store]))


def test_an_expression_over_a_batch_of_nulls():
    """A column of nulls has no type that a method for texts could be found by."""
    built = chain(
        MapValues(function(lambda v: None)), Filter(function(pl.col("value").str.len_chars() > 1), negate=True)
    )
    records = [(b"a", b"x", 0), (b"b", b"y", 1)]
    together = written(task(built).process([batch(records)], 0))
    alone = task(built)
    assert together == [r for one in records for r in written(alone.process([batch([one])], 0))]
