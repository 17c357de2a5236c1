"""Rows between all pairs of tasks of two stages, without Spark: the hand-over alone."""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engines.micro_batches.envelope import Envelope, decode, encode_all
from penstock.engines.micro_batches.stage_rows import HandedRows, Outbox, rows_by_task
from penstock.engines.offsets.start_positions import ReadSettings
from penstock.engines.spark.job import SparkJob
from penstock.log.base import HEADERS_TYPE
from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology, TaskRun

SLOTS = 2


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--counts", type=int, nargs="+", default=[8, 64, 256, 1_000])


def run(given: argparse.Namespace) -> list[dict[str, Any]]:
    return [measure(count) for count in given.counts]


def measure(tasks: int) -> dict[str, Any]:
    """One row from each task of a stage to each of the next, from one Spark task to two."""
    job = application(tasks)
    keys = pa.array([f"key-{n:06d}".encode() for n in range(tasks)], pa.large_binary())
    rows = pa.RecordBatch.from_pydict(
        {
            "timestamp": pa.array(np.arange(tasks)),
            "key": keys,
            "value": keys,
            "headers": pa.nulls(tasks, HEADERS_TYPE),
            "partition": pa.array(np.arange(tasks, dtype=np.int32)),
        }
    )
    handed = [HandedRows(1, TaskRun(1, -1), "t", f"0_{n}_0", rows) for n in range(tasks)]
    begin = time.process_time()
    outbox = Outbox(job)
    batches = [batch for each in handed for batch in encode_all(outbox.add([each]))]
    batches += encode_all(outbox.rest())
    envelopes = [each for each in decode(batches, 1) if isinstance(each, Envelope)]
    arrived = sum(each.rows.num_rows for _, each in rows_by_task(envelopes))
    seconds = time.process_time() - begin
    if arrived != tasks * tasks:
        raise SystemExit(f"{arrived} rows came of {tasks * tasks}")
    return {
        "tasks": tasks, "rows": arrived, "envelopes": len(envelopes), "cpu_s": round(seconds, 4),
        "payload_bytes": sum(len(each.payload) for each in envelopes), "us_per_row": round(seconds / arrived * 1e6, 2),
    }  # fmt: skip


def application(tasks: int) -> SparkJob:
    """As much of one as the shuffle needs: sub-topology 0 feeds sub-topology 1."""
    subs = tuple(
        PlannedSubTopology(n, (), (), (), (), (), tasks, (n,), keeps_state=False, ticks=False) for n in range(2)
    )
    plan = PhysicalPlan("scale", subs, {}, ("t",))
    return SparkJob(
        plan, b"", "", {}, 1, "", "", "", (),
        exactly_once=True, parallelism=SLOTS, reading=ReadSettings(), tick_ms=0, until_latest=False, driver_pid=0,
    )  # fmt: skip
