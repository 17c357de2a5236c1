"""Over several partitions the test driver writes what an application's stream thread writes, partition by partition.

The thread runs all tasks of the application over an embedded log. It gets one record at a time and works until nothing
moves, as the driver does. Each partition then holds the same records in the same order, and each task's stores the same rows.
"""

from __future__ import annotations

import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from dice import seeded
from families import available
from random_cases import random_case

from compare import first_difference
from inputs import input_batches, input_bytes, input_headers
from interpreter import Interpreted, interpret
from penstock.config import StreamsConfig
from penstock.engines.threads.loop.stream_thread import ThreadHooks
from penstock.log.open import open_log
from penstock.log.partitioner import partition_for
from penstock.query.source import QUERYABLE
from penstock.testing import TopologyTestDriver
from penstock.topology.plan.plan import TaskId, plan_of
from run import load
from samples import sample
from stores import rows_of
from threads import Drops, new_thread, settle, thread_app

Case = dict[str, Any]
Place = tuple[str, int]
Row = tuple[Any, ...]  # key, value, timestamp, headers
Written = list[dict[Place, list[Row]]]  # by input
Stores = dict[str, list[Any]]
CASES = Path(__file__).parents[1] / "conformance" / "cases.tar.xz"


class InTurn:
    """Where a producer sends the records of a case: by key, and those without a key to one partition after the other."""

    def __init__(self, run: Interpreted, partitions: int) -> None:
        self._run = run
        self._partitions = partitions
        self._without_key: Counter[str] = Counter()

    def of(self, record: dict[str, Any]) -> int:
        topic = record["topic"]
        key, _ = input_bytes(record, self._run.serdes[topic])
        if key is not None:
            return partition_for(key, self._partitions)
        self._without_key[topic] += 1
        return (self._without_key[topic] - 1) % self._partitions


class Rows:
    """The records that one input causes, by partition; those without a key may go to any."""

    def __init__(self) -> None:
        self.by_place: dict[Place, list[Row]] = {}

    def add(self, place: Place, row: Row) -> None:
        self.by_place.setdefault(place if row[0] is not None else (place[0], -1), []).append(row)


def _read(run: Interpreted) -> Iterator[tuple[str, Any]]:
    """The stores that have rows to be compared: neither global ones nor buffers."""
    for name, spec in run.topology.stores.items():
        if name not in run.topology.global_stores and spec.kind in QUERYABLE:
            yield name, spec


def in_the_driver(case: Case, partitions: int, *, by_column: bool = False) -> tuple[Written, Stores, int]:
    run = interpret(case)
    sources = {topic for node in run.topology.sources for topic in node.topics}
    written: Written = []
    config = {"application.id": "app", **run.config, "statestore.cache.max.bytes": 0}
    with TopologyTestDriver(run.topology, config, by_column=by_column) as driver:
        for topic, serdes in run.serdes.items():
            give = driver.input_topic if topic in sources else driver.output_topic
            give(topic, *serdes, partitions=partitions)
        for record in case["inputs"]:
            if "advance_wall_clock_ms" in record:
                driver.advance_wall_clock_time(record["advance_wall_clock_ms"])
            else:
                key, value = input_bytes(record, run.serdes[record["topic"]])
                driver.pipe_raw(record["topic"], key, value, record["timestamp"], input_headers(record))
            rows = Rows()
            for topic in run.serdes:
                while (each := driver.read_raw(topic)) is not None:
                    rows.add((topic, each.partition), (each.key, each.value, each.timestamp, tuple(each.headers)))
            written.append(rows.by_place)
        stores = {
            name: [rows_of(spec, driver.store(name, number)) for number in range(driver.partitions_of(name))]
            for name, spec in _read(run)
        }
        return written, stores, driver.dropped_records


def in_a_thread(case: Case, partitions: int) -> tuple[Written, Stores, int]:
    run = interpret(case)
    now_ms = 0
    written: Written = []
    with open_log(f"memory://{uuid.uuid4().hex}") as log:
        for topic in run.serdes:
            log.create_topic(topic, partitions, {"retention.ms": "-1"})
        config = {"application.id": "app", "bootstrap.servers": log.url, "commit.interval.ms": 3_600_000, **run.config}
        config["statestore.cache.max.bytes"] = 0
        app = thread_app(run.topology, StreamsConfig(config), log)
        drops, producer = Drops(), InTurn(run, partitions)
        thread = new_thread(app, log, hooks=ThreadHooks(sensor=drops, clock=lambda: now_ms))
        places = [(topic, number) for topic in run.serdes for number in range(partitions)]
        read = dict.fromkeys(places, 0)
        thread.start()
        try:
            for record in case["inputs"]:
                own: tuple[Place, int] | None = None
                if "advance_wall_clock_ms" in record:
                    now_ms += record["advance_wall_clock_ms"]
                else:
                    place = (record["topic"], producer.of(record))
                    own = place, log.end_offset(*place)
                    ((_, batch),) = input_batches([record], run.serdes).items()
                    log.append(*place, batch)
                settle(thread)
                rows = Rows()
                for place in places:
                    found = log.read(*place, read[place])
                    read[place] = found.next_offset
                    for each in found.records.to_pylist():
                        if own != (place, each["offset"]):
                            headers = tuple((header["key"], header["value"]) for header in each["headers"] or ())
                            rows.add(place, (each["key"], each["value"], each["timestamp"], headers))
                written.append(rows.by_place)
            homes = {name: sub for sub in app.plan.subtopologies for name in sub.stores}
            stores = {
                name: [rows_of(spec, thread.store(TaskId(homes[name].id, n), name)) for n in range(homes[name].tasks)]
                for name, spec in _read(run)
            }
            return written, stores, drops.records
        finally:
            thread.close(commit=False)


def order_is_free(case: Case) -> bool:
    """Whether the records of one input may meet in any order.

    They do if they come from several tasks to a topic that others read, or by two internal topics to one task.
    """
    plan = plan_of(interpret(case).topology, "app", dict.fromkeys(case["topics"], 1))
    behind = {sub.id for sub in plan.subtopologies if sub.internal_topics}
    nodes = interpret(case).topology.nodes
    writers = {topic: sub.id for sub in plan.subtopologies for name in sub.nodes if (topic := _sink(nodes[name]))}
    return any(
        len(sub.internal_topics) > 1 or any(writers.get(topic) in behind for topic in sub.internal_topics)
        for sub in plan.subtopologies
    )


def _sink(node: Any) -> str | None:
    return getattr(node, "topic", None)


def difference(case: Case, partitions: int, *, by_column: bool) -> str | None:
    expected = in_a_thread(case, partitions)
    actual = in_the_driver(case, partitions, by_column=by_column)
    parts = zip(("input", "store", "dropped records"), expected, actual, strict=True)
    return next((found for what, one, other in parts if (found := first_difference(what, one, other))), None)


def fits(case: Case) -> bool:
    """Whether a recorded case runs to its end, and asks for nothing on the way."""
    ends = "build_error" not in case and not any("error" in row for rows in case["outputs"] for row in rows)
    return ends and not any("query" in record for record in case["inputs"])


RECORDED = {case["file"]: case for case in load(CASES) if fits(case)}
LONGEST = 25
GLOBAL_TABLE = next(case for case in RECORDED.values() if "globalTable" in {node["op"] for node in case["topology"]})
SAMPLE = [case | {"inputs": case["inputs"][:LONGEST]} for case in [*sample([*RECORDED.values()], 21), GLOBAL_TABLE]]


def check_recorded(case: Case) -> None:
    found = difference(case, 3, by_column=False)
    if found and order_is_free(case):
        pytest.skip("records of one input may meet in any order")
    assert found is None


def test_the_sample_has_all_that_matters() -> None:
    operators = {node["op"] for case in SAMPLE for node in case["topology"]}
    assert operators >= {"groupBy", "join", "fkJoin", "globalTable", "process"}
    assert any(record.get("key", 0) is None for case in SAMPLE for record in case["inputs"])


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case["file"])
def test_recorded_cases(case: Case) -> None:
    check_recorded(case)


@pytest.mark.whole
@pytest.mark.parametrize("name", RECORDED)
def test_all_recorded_cases(name: str) -> None:
    check_recorded(RECORDED[name])


def check_random(seed: int) -> None:
    case = random_case(seeded(seed), available())
    found = difference(case, 2 + seed % 3, by_column=bool(seed % 2))
    assert found is None or order_is_free(case), found


@pytest.mark.parametrize("seed", range(8))
def test_random_topologies(seed: int) -> None:
    check_random(seed)


@pytest.mark.whole
@pytest.mark.parametrize("seed", range(100, 200))
def test_many_random_topologies(seed: int) -> None:
    check_random(seed)
