"""Task runs as workers do them, in this process or in others, without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.config import StreamsConfig
from penstock.engines.application.planning import PlannedApp, plan_for
from penstock.engines.micro_batches.engine import prepare_job
from penstock.engines.micro_batches.envelope import Envelope, EnvelopeKind
from penstock.engines.micro_batches.worker.task_attempt import run_task
from penstock.engines.micro_batches.worker.task_batch import TaskBatch
from penstock.engines.spark.job import load_job
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.topology.plan.plan import TaskRun

ROWS = 10  # of each batch


@contextmanager
def prepared(root: Path, topology: Any, topics: Sequence[str], **settings: Any) -> Iterator[tuple[bytes, EmbeddedLog]]:
    """The application as workers get it, and its log with these topics of one partition."""
    config = StreamsConfig(
        {
            "processing.mode": "micro_batch",
            "application.id": "app",
            "bootstrap.servers": f"sqlite:///{root / 'log.db'}",
            "state.dir": str(root / "state"),
            "default.key.serde": "string",
            "default.value.serde": "string",
            **settings,
        }
    )
    with open_log(config["bootstrap.servers"]) as log:
        there = {topic.name for topic in log.topics()}
        for topic in topics:
            if topic not in there:
                log.create_topic(topic, 1)
        lease = log.acquire_lease("app", "test", 600_000, force=True)
        app = PlannedApp(topology, config, plan_for(topology, config, log), log)
        yield prepare_job(app, lease, parallelism=2, until_latest=False).dump(), log


def append(log: EmbeddedLog, topic: str, rows: Sequence[tuple[str, str]]) -> None:
    """Records of these keys and values; the time is their number."""
    columns = {
        "timestamp": pa.array(range(len(rows)), pa.int64()),
        "key": pa.array([key.encode() for key, _ in rows], pa.large_binary()),
        "value": pa.array([value.encode() for _, value in rows], pa.large_binary()),
    }
    log.append(topic, 0, pa.RecordBatch.from_pydict(columns))


@cache
def loaded(data: bytes) -> Any:
    return load_job(data)


def run(data: bytes, batch: int, topic: str = "words") -> int:
    """Runs ROWS records of the topic as a batch in this process; gives its process number."""
    report(data, batch, topic)
    return os.getpid()


def report(data: bytes, batch: int, topic: str = "words") -> bytes:
    """Runs ROWS records of the topic as a batch in this process; gives its report."""
    ends = f"[{batch * ROWS}, {(batch + 1) * ROWS}]".encode()
    job = loaded(data)
    task = TaskRun(next(s.id for s in job.plan.subtopologies if topic in s.external_topics), 0)
    inbox = [Envelope(0, 0, EnvelopeKind.RANGE, f"{task.subtopology}_0_0", topic, 0, "", ends)]
    return run_task(TaskBatch(job, 0, task, batch, inbox))[1].payload


@contextmanager
def two_workers() -> Iterator[list[ProcessPoolExecutor]]:
    made = [ProcessPoolExecutor(1, get_context("spawn")) for _ in range(2)]
    yield made
    for worker in made:
        worker.shutdown()


def written(data: bytes, topic: str) -> list[tuple[str, Any]]:
    with open_log(loaded(data).log_url) as log:
        rows = log.read(topic, 0, 0, 10_000).records
    return [(k.decode(), v) for k, v in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)]
