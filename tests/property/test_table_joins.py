"""Joins of tables: record for record the same at any batch size, and by foreign key the right result in the end."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from penstock import Materialized, StreamsBuilder, Topology, ValueTransformerWithKey
from penstock.config import StreamsConfig
from penstock.log.base import RECORD_SCHEMA
from penstock.log.partitioner import partition_for
from penstock.runtime.task import StreamTask, TaskPart, TopicBatch
from penstock.state.maps import MemoryTaskState
from penstock.testing import TopologyTestDriver
from penstock.topology.plan.plan import TaskRun, plan_of

DEFAULTS = {"default.key.serde": "string", "default.value.serde": "string", "statestore.cache.max.bytes": 0}
KEYS = st.sampled_from(["a", "b", "c", "d"])
RECORDS = st.lists(
    st.tuples(st.sampled_from(["left", "right", "third"]), KEYS, st.none() | st.text("xyz", max_size=2)),
    max_size=40,
)


def pair(left: Any, right: Any) -> str | None:
    """A joiner that says what it saw, and sometimes deletes."""
    return None if (left, right) == ("x", "x") else f"({left},{right})"


class Longer(ValueTransformerWithKey[str, str, str]):
    """Has no state, so it may be called at any time."""

    def transform(self, key: str, value: str | None) -> str | None:
        return None if value is None else f"{value}/{key}"


SHAPES = {
    "plain": lambda t: t,
    "filtered": lambda t: t.filter(lambda v: v is not None and "y" not in v),
    "mapped": lambda t: t.map_values(lambda v: v.upper()),
    "transformed": lambda t: t.transform_values(Longer),
    "kept": lambda t: t.transform_values(Longer, materialized="kept"),
}
VERBS = ("join", "left_join", "outer_join")


def joined(verb: str, again: str, shape: str, below: str, *, stored: bool) -> Topology:
    """Two tables joined, their result changed and joined with a third one."""
    builder = StreamsBuilder()
    left, right, third = builder.table("left"), SHAPES[shape](builder.table("right")), builder.table("third")
    both = getattr(left, verb)(right, pair, "both" if stored else None)
    both.to_stream().to("both")
    result = getattr(SHAPES[below](both) if below != "kept" else both, again)(third, pair, Materialized("all"))
    result.filter(lambda v: "z" in v).to_stream().to("out")
    return builder.build()


def outcome(topology: Topology, records: list[Any], batch_size: int, cache: int = 0) -> list[Any]:
    config = {**DEFAULTS, "statestore.cache.max.bytes": cache}
    with TopologyTestDriver(topology, config, batch_size=batch_size, by_column=batch_size > 1) as driver:
        for time, (topic, key, value) in enumerate(records):
            driver.input_topic(topic).pipe(key=key, value=value, timestamp=100 - 7 * (time % 9))
        driver.flush()
        outputs = [driver.output_topic(topic).read_records_to_list() for topic in ("both", "out")]
        return [outputs, list(driver.store("all").all()), driver.dropped_records]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(VERBS),
    st.sampled_from(VERBS),
    st.sampled_from(sorted(SHAPES)),
    st.sampled_from(sorted(SHAPES)),
    st.booleans(),
    RECORDS,
    st.integers(2, 40),
)
def test_batches_give_what_single_records_give(
    verb: str, again: str, shape: str, below: str, stored: bool, records: list[Any], batch_size: int
) -> None:
    topology = joined(verb, again, shape, below, stored=stored)
    assert outcome(topology, records, batch_size) == outcome(topology, records, 1)


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(VERBS), st.sampled_from(VERBS), st.booleans(), RECORDS, st.integers(2, 40))
def test_with_caching_the_last_results_are_the_same(
    verb: str, again: str, stored: bool, records: list[Any], batch_size: int
) -> None:
    topology = joined(verb, again, "plain", "plain", stored=stored)
    cached, single = outcome(topology, records, batch_size, 10_000_000), outcome(topology, records, 1)
    assert [(k, v.value) for k, v in cached[1]] == [(k, v.value) for k, v in single[1]]
    for some, every in zip(cached[0], single[0], strict=True):
        newest = [{r.key: r.value for r in out} for out in (some, every)]
        left, right = ({k: v for k, v in one.items() if v is not None} for one in newest)
        assert left == right


class Stages:
    """An application as Spark runs it, stage by stage, without Spark: every task is made anew for every batch."""

    def __init__(self, topology: Topology, counts: dict[str, int], **config: Any) -> None:
        self.topology = topology
        self.config = StreamsConfig({"application.id": "app", **DEFAULTS, **config})
        self.plan = plan_of(topology, "app", counts)
        self.states = {
            (s.id, p): MemoryTaskState([topology.stores[name] for name in s.stores])
            for s in self.plan.subtopologies
            for p in range(s.tasks)
        }
        self.written: dict[str, list[tuple[str, str | None]]] = defaultdict(list)

    def run(self, records: list[tuple[str, str, str | None, int]]) -> None:
        inbox: dict[tuple[int, TaskRun], list[TopicBatch]] = defaultdict(list)
        parts: dict[tuple[str, int], list[Any]] = defaultdict(list)
        for topic, key, value, time in records:
            partition = partition_for(key.encode(), self.plan.partitions[topic])
            parts[topic, partition].append((time, key.encode(), None if value is None else value.encode()))
        for (topic, partition), rows in parts.items():
            self._deliver(inbox, topic, partition, rows, -1)
        for level in range(self.plan.levels):
            for run in self.plan.runs(level):
                sub = self.plan.subtopology(run.subtopology)
                state = self.states[run.subtopology, run.partition]
                part = TaskPart(run.task_id, self.plan.partitions, sub.nodes)
                task = StreamTask(self.topology, self.config, part, state)
                for topic, out in task.process(inbox[level, run], 0).records.items():
                    self._take(inbox, topic, out, level)

    def _take(self, inbox: Any, topic: str, out: pa.RecordBatch, level: int) -> None:
        found: dict[int, list[Any]] = defaultdict(list)
        for row in out.to_pylist():
            found[row["partition"]].append((row["timestamp"], row["key"], row["value"]))
            if topic not in self.plan.internal_topics:
                value = None if row["value"] is None else row["value"].decode()
                self.written[topic].append((row["key"].decode(), value))
        if topic in self.plan.internal_topics:
            for partition, rows in found.items():
                self._deliver(inbox, topic, partition, rows, level)

    def _deliver(self, inbox: Any, topic: str, partition: int, rows: list[Any], after: int) -> None:
        times, keys, values = zip(*rows, strict=True)
        columns = (range(len(rows)), times, keys, values, [None] * len(rows))
        arrays = [pa.array(list(c), f.type) for c, f in zip(columns, RECORD_SCHEMA, strict=True)]
        batch = TopicBatch(topic, partition, pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA))
        for reader in self.plan.readers(topic):
            level = self.plan.entry_level(reader, after=after)
            inbox[level, TaskRun(reader.id, partition, reader.levels.index(level))].append(batch)

    def store(self, name: str) -> dict[str, Any]:
        from penstock.state.views import open_view
        from penstock.topology.configured import with_default_serdes

        spec = with_default_serdes(self.topology, "string", "string").stores[name]
        found = [s for s in self.plan.subtopologies if name in s.stores]
        states = [self.states[s.id, p] for s in found for p in range(s.tasks)]
        return {key: v.value for state in states for key, v in open_view(spec, state.map(name), state.meta).all()}


def history(chance: random.Random) -> list[tuple[str, str, str | None, int]]:
    """Changes of few rows, many of them deletions and changed foreign keys."""
    changes: list[tuple[str, str, str | None, int]] = []
    for step in range(60):
        time = chance.randrange(50)
        if chance.random() < 0.35:
            value = None if chance.random() < 0.4 else f"v{step}"
            changes.append(("users", f"u{chance.randrange(2)}", value, time))
        else:
            key = chance.choice(["u0", "u1", "u2", "--"])
            order = None if chance.random() < 0.25 else f"{key}{chance.randrange(3)}"
            changes.append(("orders", f"o{chance.randrange(4)}", order, time))
    return changes


def foreign(value: str) -> str | None:
    return None if value.startswith("-") else value[:2]


def by_foreign_key(*, left: bool) -> Topology:
    builder = StreamsBuilder()
    orders, users = builder.table("orders"), builder.table("users")
    verb = orders.left_join if left else orders.join
    verb(users, "{}={}".format, Materialized("named"), foreign_key=foreign).to_stream().to("out")
    return builder.build()


@settings(max_examples=examples(30), deadline=None)
@given(st.booleans(), st.integers(0, 1 << 32).map(random.Random), st.integers(1, 30), st.sampled_from([0, 10_000_000]))
def test_a_foreign_key_join_is_right_after_every_batch(
    left: bool, chance: random.Random, size: int, cache: int
) -> None:
    counts = {"orders": 2, "users": 3, "out": 1}
    stages = Stages(by_foreign_key(left=left), counts, **{"statestore.cache.max.bytes": cache})
    now: dict[str, dict[str, str | None]] = {"orders": {}, "users": {}}
    changes = history(chance)
    for start in range(0, len(changes), size):
        batch = changes[start : start + size]
        stages.run(batch)
        for topic, key, value, _ in batch:
            now[topic][key] = value
        users = now["users"]
        pairs = {k: (v, users.get(foreign(v) or "")) for k, v in now["orders"].items() if v is not None}
        wanted = {k: f"{order}={user}" for k, (order, user) in pairs.items() if left or user is not None}
        assert stages.store("named") == wanted
        assert {k: v for k, v in dict(stages.written["out"]).items() if v is not None} == wanted
