"""ShuffleBench and Theodolite in a stream thread, exactly once over an embedded log, each compared with Polars' answer."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl
import pytest

from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.log.partitioner import partition_for
from penstock.topology.topology import Topology
from threads import append, records_of, run_to_end, thread_app

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from rtm import tasks
from shufflebench import shuffle
from theodolite import answers, cases
from theodolite.sensors import Plant

PARTITIONS = 2
PLANTS = {case: Plant(20_000, 100) for case in cases.CASES} | {"uc3": Plant(10_000, 40, slow_by=600)}
TOPICS = {name: name for name in ("power", "groups", "feedback", "out")}
Records = Iterable[tuple[bytes | None, bytes, int, int]]


@pytest.fixture
def log() -> Iterator[EmbeddedLog]:
    with open_log(f"memory://{uuid.uuid4().hex}") as opened:
        yield opened


def fill(log: EmbeddedLog, topic: str, records: Records) -> None:
    """Create a topic with records of (key, value, timestamp, partition)."""
    log.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
    by_partition: dict[int, list[tuple[bytes | None, bytes, int]]] = {}
    for key, value, timestamp, partition in records:
        by_partition.setdefault(partition, []).append((key, value, timestamp))
    for partition, rows in by_partition.items():
        append(log, topic, rows, partition)


def by_key(records: Iterable[tuple[bytes, bytes, int]]) -> Records:
    return ((key, value, timestamp, partition_for(key, PARTITIONS)) for key, value, timestamp in records)


def run(log: EmbeddedLog, topology: Topology) -> pl.DataFrame:
    log.create_topic("out", PARTITIONS)
    run_to_end(thread_app(topology, {}, log), log)
    return written(log, "out")


def written(log: EmbeddedLog, topic: str) -> pl.DataFrame:
    rows = [record[:2] for partition in range(PARTITIONS) for record in records_of(log, topic, partition)]
    return pl.DataFrame(rows, schema={"key": pl.Binary, "value": pl.Binary}, orient="row")


def test_shufflebench_counts_each_match_once(log: EmbeddedLog) -> None:
    records = ((key, value, at, partition) for key, value, partition, at in shuffle.rows(20_000, PARTITIONS))
    fill(log, "records", records)
    found = run(log, shuffle.topology("records", "out"))
    matches, changelog = shuffle.matches(20_000), written(log, f"app-{shuffle.STORE}-changelog")
    rows, wrong = shuffle.compared(matches, found, changelog)
    assert not wrong
    assert rows > 2
    assert shuffle.compared(matches, found[1:], changelog)[1].startswith("1 of 983 rules differ")


def test_shufflebench_in_the_order_of_the_records_has_the_results_of_polars(log: EmbeddedLog) -> None:
    records = ((key, value, at, 0) for key, value, _, at in shuffle.rows(20_000, 1))
    fill(log, "records", records)
    found = shuffle.states(run(log, shuffle.topology("records", "out")))
    expected = shuffle.in_order(shuffle.matches(20_000))
    assert expected.sort(pl.all()).equals(found.select(expected.columns).sort(pl.all()))


@pytest.mark.parametrize("case", cases.CASES)
def test_theodolite_has_the_answers_of_polars(case: str, log: EmbeddedLog) -> None:
    plant = PLANTS[case]
    fill(log, "power", by_key(plant.records()))
    if case == "uc4":
        fill(log, "groups", by_key(plant.group_records()))
        log.create_topic("feedback", PARTITIONS, {"retention.ms": "-1"})
    found = run(log, cases.topology(case, TOPICS))
    expected = answers.ANSWERS[case](plant)
    rows, wrong = answers.compared(case, expected, found)
    assert not wrong
    assert rows > 100
    assert answers.compared(
        case, expected, found[:-1] if case == "uc1" else found.filter(pl.col("key") != found["key"][0])
    )[1]


def test_sums_of_groups_are_those_of_their_members_before_and_after_they_move() -> None:
    """An answer by hand, for the one that Polars computes: one sensor that moves, in two groups below one."""
    plant = Plant(400, 20)
    sums = dict(answers.uc4(plant).iter_rows())
    power = plant.frame().filter(pl.col("timestamp") // 5_000 == plant.half_way_ms // 5_000)
    start = plant.half_way_ms // 5_000 * 5_000
    last: dict[tuple[str, str], float] = {}
    for identifier, timestamp, value in power.iter_rows():
        sensor = int(identifier.removeprefix("sensor-"))
        moved = sensor % 10 == 0 and timestamp > plant.half_way_ms
        group = (sensor // 10 + moved) % 2
        last[f"group-1-{group}", identifier] = value
    for group in ("group-1-0", "group-1-1"):
        assert sums[f"{group}@{start}"] == sum(value for (of, _), value in last.items() if of == group)
    assert sums[f"group-2-0@{start}"] == sum(last.values())


@pytest.mark.parametrize("task", tasks.TASKS)
def test_each_record_of_the_real_time_tasks_has_the_output_of_polars(task: str, log: EmbeddedLog) -> None:
    sent = tasks.records(task, 20_000).with_columns(at=1_790_812_700_000 + pl.int_range(20_000) * 10)
    rows = ((key.encode(), value.encode(), at) for key, value, at in sent.iter_rows())
    fill(log, "records", by_key(rows))
    found = run(log, tasks.topology(task, "records", "out")).cast(pl.String)
    both, wrong = tasks.matched(task, sent, found)
    assert not wrong
    assert both.height >= (20_000 if task != "d" else 15_000)
    assert tasks.matched(task, sent, found[1:])[1]
