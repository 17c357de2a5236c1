from __future__ import annotations

from dataclasses import replace

import pytest

from penstock import (
    Consumed,
    JoinWindows,
    Materialized,
    Processor,
    Repartitioned,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from penstock.config import StreamsConfig
from penstock.errors import CoPartitionError, TopologyError, UnknownTopicError
from penstock.serde import Serdes
from penstock.topology.plan.explain import explain_text
from penstock.topology.plan.plan import TaskRun, levels_of, plan_of

STRINGS = Consumed(key_serde=Serdes.string(), value_serde=Serdes.string())


def counted(fn=lambda _, value: value, *, store: str = "counts", partitions: int | None = None):
    builder = StreamsBuilder()
    stream = builder.stream("words", STRINGS).select_key(fn)
    if partitions is not None:
        stream = stream.repartition(Repartitioned(partitions=partitions))
    stream.group_by_key().count(Materialized(store)).to_stream().to("counts")
    return builder.build()


def test_levels_follow_the_repartition_topics() -> None:
    assert levels_of({0: {"a": []}}) == [[0]]
    assert levels_of({0: {"a": ["x"]}, 1: {"x": ["y"]}, 2: {"b": ["z"]}, 3: {"y": [], "z": []}}) == [[0, 2], [1], [3]]
    assert levels_of({0: {"a": ["x"]}, 1: {"b": [], "x": []}}) == [[0], [1]]


def test_a_cycle_is_unrolled() -> None:
    left, right = {"left": ["ask"], "answer": []}, {"ask": ["answer"], "right": ["answer"]}
    assert levels_of({0: left, 1: right}) == [[0], [1], [0]]
    first = {"in": ["left"]}
    third = {"left": ["ask"], "answer": ["out"]}
    assert levels_of({0: first, 1: third, 2: right, 3: {"out": []}}) == [[0], [1], [2], [1], [3]]


def test_cycles_in_a_row_side_by_side_and_with_oneself() -> None:
    chain = {0: {"a": ["p"], "q": ["r"], "s": []}, 1: {"b": ["q"], "p": ["q"]}, 2: {"c": ["s"], "r": ["s"]}}
    assert levels_of(chain) == [[0], [1], [0], [2], [0]]
    both = {0: {"a": ["p", "r"], "q": [], "s": []}, 1: {"p": ["q"]}, 2: {"r": ["s"]}}
    assert levels_of(both) == [[0], [1, 2], [0]]
    assert levels_of({0: {"a": ["p", "q"], "p": ["q"], "q": []}}) == [[0], [0], [0]]
    each_other = {0: {"a": ["p", "s"], "q": [], "r": ["s"]}, 1: {"b": ["r", "q"], "p": ["q"], "s": []}}
    assert levels_of(each_other) == [[1], [0], [1], [0]]


def test_topics_in_a_circle_have_no_levels() -> None:
    with pytest.raises(TopologyError, match="circle"):
        levels_of({0: {"a": ["x"], "y": ["x"]}, 1: {"x": ["y"]}})


def test_a_stream_with_a_new_key_joins_a_table_of_its_own_subtopology() -> None:
    """Its punctuations wait in the last stage, which nobody would read after."""
    builder = StreamsBuilder()
    lines = builder.stream("lines", STRINGS)
    keyed = lines.process(lambda: None).select_key(lambda v: v)
    keyed.join(lines.to_table(), lambda a, b: a + b).to("out")
    (sub,) = plan_of(builder.build(), "app", {"lines": 2}).subtopologies
    assert sub.levels == (0, 1)
    assert sub.held == (1,)


def test_tasks_and_stages() -> None:
    plan = plan_of(counted(), "app", {"words": 3, "other": 9})
    assert [(s.id, s.tasks, s.levels) for s in plan.subtopologies] == [(0, 3, (0,)), (1, 3, (1,))]
    assert plan.runs(1) == [TaskRun(1, p) for p in range(3)]
    assert plan.external_topics == ("words",)
    assert plan.runs(1)[2].task_id == "1_2"
    assert not plan.subtopology(0).keeps_state
    assert plan.subtopology(1).keeps_state


def test_repartitioned_gives_the_number() -> None:
    plan = plan_of(counted(partitions=5), "app", {"words": 3})
    assert [s.tasks for s in plan.subtopologies] == [3, 5]


def test_a_repartition_follows_the_table_that_it_is_joined_with() -> None:
    builder = StreamsBuilder()
    table = builder.table("users", STRINGS)
    builder.stream("orders", STRINGS).select_key(lambda _, v: v).join(table, lambda a, b: a + b).to("out")
    plan = plan_of(builder.build(), "app", {"orders": 2, "users": 6})
    (topic,) = plan.internal_topics
    assert plan.partitions[topic] == 6


def test_inputs_that_join_must_be_co_partitioned() -> None:
    builder = StreamsBuilder()
    builder.stream("orders", STRINGS).join(builder.table("users", STRINGS), lambda a, b: a + b).to("out")
    with pytest.raises(CoPartitionError, match="'users' has 6 partitions and 'orders' has 2") as caught:
        plan_of(builder.build(), "app", {"orders": 2, "users": 6})
    assert "repartition()" in caught.value.hint


def test_unknown_topics_and_patterns() -> None:
    with pytest.raises(UnknownTopicError, match="'words', which does not exist") as caught:
        plan_of(counted(), "app", {"word": 1})
    assert "penstock topics create words" in caught.value.hint


def test_explain_names_what_runs_for_each_record() -> None:
    topology = counted()
    plan = plan_of(topology, "app", {"words": 2})
    text = explain_text(plan, topology, {0: None, 1: "because"}, StreamsConfig({"processing.mode": "micro_batch"}))
    assert "Micro-batches\n\nStage 0 (reads the log, no shuffle)" in text
    assert "Stage 1 (after a shuffle by task)" in text
    in_threads = explain_text(plan, topology, {})
    assert "Stream threads\n\nStage 0 (reads the log)" in in_threads
    assert "Stage 1 (reads repartition topics)" in in_threads
    assert "runs record by record: because" in text
    assert "test_plan.py" in text


def test_explain_names_what_the_optimiser_did() -> None:
    builder = StreamsBuilder()
    builder.table("names", STRINGS, "names")
    topology = builder.build({"topology.optimization": "all"})
    text = explain_text(plan_of(topology, "app", {"names": 1}), topology, {0: None})
    assert "topic names is the changelog of store names (reuse.ktable.source.topics)" in text


class _Nothing(Processor):
    def process(self, record):
        pass


def _summed(stream):
    return stream.group_by_key().reduce(lambda total, value: total + value, Materialized("sums"))


NUMBERS = {
    "a table": (lambda b: b.table("words", STRINGS).to_stream().to("out"), False),
    "a sum": (lambda b: _summed(b.stream("words", STRINGS)), False),
    "a join": (
        lambda b: b.stream("words", STRINGS).join(b.table("more", STRINGS), lambda left, right: left + right),
        False,
    ),
    "a filtered table": (lambda b: b.table("words", STRINGS).filter(lambda _, v: v, Materialized("found")), False),
    "a store without changelog": (
        lambda b: b.stream("words", STRINGS).group_by_key().count(Materialized("counts").with_logging_disabled()),
        True,
    ),
    "windows": (lambda b: b.stream("words", STRINGS).group_by_key().windowed_by(TimeWindows.of("1m")).count(), True),
    "suppress": (lambda b: _summed(b.stream("words", STRINGS)).suppress(Suppressed.until_time_limit("1s")), True),
    "a processor": (lambda b: b.stream("words", STRINGS).process(_Nothing), True),
    "an extractor": (
        lambda b: b.stream("words", replace(STRINGS, timestamp_extractor=lambda record, _: record.timestamp)).to("out"),
        True,
    ),
    "joined streams": (
        lambda b: b.stream("words", STRINGS).join(
            b.stream("more", STRINGS), lambda left, right: left + right, JoinWindows.of("1s")
        ),
        True,
    ),
    "versions": (
        lambda b: b.table("words", STRINGS, Materialized("v", history="1h")),
        True,
    ),
}


@pytest.mark.parametrize("built", NUMBERS)
def test_whether_numbers_of_earlier_commits_matter(built: str) -> None:
    builder = StreamsBuilder()
    build, expected = NUMBERS[built]
    build(builder)
    plan = plan_of(builder.build(), "app", {"words": 1, "more": 1})
    assert [sub.reads_numbers for sub in plan.subtopologies] == [expected]
