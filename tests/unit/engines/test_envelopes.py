from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.micro_batches.envelope import Envelope, EnvelopeKind, decode, encode
from penstock.engines.micro_batches.spark_tasks import slot_of, slots_of
from penstock.engines.micro_batches.stage_rows import HandedRows, Outbox, rows_by_task
from penstock.engines.micro_batches.worker.task_attempt import topic_batches
from penstock.engines.offsets.offsets import SourceOffset, batch_ends
from penstock.engines.offsets.start_positions import ReadSettings
from penstock.engines.spark.job import SparkJob
from penstock.log.base import HEADERS_TYPE, RECORD_SCHEMA, TopicPartition
from penstock.log.open import open_log
from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology, TaskRun


def rows(times: list[int], size: int = 1) -> pa.RecordBatch:
    columns = {
        "timestamp": pa.array(times, pa.int64()),
        "key": pa.array([b"k"] * len(times), pa.large_binary()),
        "value": pa.array([str(t).encode() * size for t in times], pa.large_binary()),
        "headers": pa.nulls(len(times), HEADERS_TYPE),
    }
    return pa.RecordBatch.from_pydict(columns)


def handed(origin: str, times: list[int], partitions: list[int] | None = None, size: int = 1) -> HandedRows:
    batch = rows(times, size)
    numbers = pa.array([0] * len(times) if partitions is None else partitions, pa.int32())
    return HandedRows(1, TaskRun(1, -1), "t-repartition", origin, batch.append_column("partition", numbers))


def job(tasks: int, parallelism: int = 2) -> Any:
    """As much of an application as the shuffle needs: sub-topology 0 feeds sub-topology 1."""
    plan = PhysicalPlan(
        "app",
        tuple(PlannedSubTopology(n, (), (), (), (), (), tasks, (n,), keeps_state=False, ticks=False) for n in range(2)),
        {},
        ("t-repartition",),
    )
    reading = ReadSettings()
    return SparkJob(
        plan, b"", "", {}, 1, "", "", "", (), True, parallelism, reading, 0, until_latest=False, driver_pid=0
    )


def sent(tasks: int, *given: HandedRows) -> list[Envelope]:
    outbox = Outbox(job(tasks))
    return [*outbox.add(given), *outbox.rest()]


def test_envelopes_come_back_and_those_of_later_stages_pass() -> None:
    here = Envelope(1, 0, EnvelopeKind.RANGE, "1_0_0", "t", 0, "", b"[3, 7]")
    there = Envelope(-1, 0, EnvelopeKind.REPORT, "1_0_0", "", -1, "", b"{}")
    (passed, found) = decode([encode([here, there])], 1)
    assert isinstance(found, Envelope)
    assert found.range == (3, 7)
    assert passed == encode([there])
    (again,) = decode([passed], -1)
    assert isinstance(again, Envelope)
    assert again.report == {}


def test_large_payloads_are_cut_and_keep_their_order() -> None:
    envelopes = sent(1, handed("0_0_0", list(range(10_000, 0, -1)), size=1000))
    assert len(envelopes) > 1
    ((run, found),) = rows_by_task(envelopes[::-1])
    assert (run, found.topic, found.partition) == (TaskRun(1, 0), "t-repartition", 0)
    assert found.rows.column("timestamp").to_pylist() == list(range(10_000, 0, -1))


def test_rows_of_several_tasks_are_merged_by_time_in_any_order_of_delivery() -> None:
    envelopes = [
        *sent(1, handed("0_0_0", [1, 5, 3])),
        *sent(1, handed("0_1_0", [2, 5, 8])),
        *sent(1, handed("0_2_0", [])),
    ]
    with open_log("memory://") as log:
        for delivered in (envelopes, envelopes[::-1]):
            ((_, found),) = rows_by_task(delivered)
            (batch,) = topic_batches([found], log, 3)
            assert batch.records.column("timestamp").to_pylist() == [1, 2, 5, 3, 5, 8]
            assert batch.records.column("offset").to_pylist() == [(3 << 32) + i for i in range(6)]
            assert batch.records.schema == RECORD_SCHEMA


def test_a_stage_sends_one_envelope_a_slot_whatever_the_number_of_tasks() -> None:
    tasks = 300
    given = [handed(f"0_{n}_0", list(range(tasks)), list(range(tasks))) for n in range(tasks)]
    envelopes = sent(tasks, *given)
    assert len(envelopes) == 2  # of as many slots: 90,000 pairs of tasks
    assert sum(len(e.payload) for e in envelopes) < 20 * sum(g.rows.nbytes for g in given) // 10
    found = {run.partition: arrived.rows for run, arrived in rows_by_task(envelopes)}
    assert sorted(found) == list(range(tasks))
    assert all(r.column("timestamp").to_pylist() == [partition] * tasks for partition, r in found.items())


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 3), st.one_of(st.integers(-5, 5), st.sampled_from([-(1 << 63), (1 << 63) - 1])))
        ),
        max_size=4,
    )
)
def test_rows_are_merged_as_one_by_one(written: list[list[tuple[int, int]]]) -> None:
    """Per partition: by the newest time that a writer has come to, then by the writer's name, then in its order."""
    given_rows = [
        handed(f"0_{n}_0", [time for _, time in rows_], [p for p, _ in rows_]) for n, rows_ in enumerate(written)
    ]
    found = {
        run.partition: each.rows.column("timestamp").to_pylist() for run, each in rows_by_task(sent(4, *given_rows))
    }
    for partition in range(4):
        expected = []
        for n, rows_ in enumerate(written):
            own = [time for p, time in rows_ if p == partition]
            expected += [(newest, n, i, own[i]) for i, newest in enumerate(itertools.accumulate(own, max))]
        assert found.get(partition, []) == [time for *_, time in sorted(expected)]


def test_slots_are_those_of_single_tasks() -> None:
    application = job(5, parallelism=3)
    assert slots_of(application, 1, 1, np.arange(5)).tolist() == [
        slot_of(application, 1, TaskRun(1, n)) for n in range(5)
    ]


def test_offsets_and_admission() -> None:
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    assert SourceOffset.of(SourceOffset({a: 3, b: 4}, 7).to_json()) == SourceOffset({a: 3, b: 4}, 7)
    assert batch_ends({a: 10, b: 10}, {a: 10, b: 10}, 5, 5) == {a: 10, b: 10}
    assert batch_ends({a: 0, b: 0}, {a: 1000, b: 1}, 10, 1000) == {a: 9, b: 1}
    assert batch_ends({a: 0}, {a: 1000, b: 50}, 10_000, 20) == {a: 20, b: 20}
