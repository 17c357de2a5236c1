"""The memory that a worker keeps when it has nothing to do: after a restore, and after large records.

python bench/memory_kept.py [--keys 1000000] [--value-bytes 100] [--records 20] [--record-bytes 9000000] [--json FILE]

restored   a worker process restores a task's store whose replica is lost, and then idles for 20 seconds
large      a worker process reads large records from a log and compresses what it writes, as a batch does, and then idles
batches    a worker process runs micro-batches of ten large records through a task with two outputs and a store

``own_bytes`` is anonymous memory, which only this process can give back; ``mapped_bytes`` are pages of files, such as
LMDB's, which the system takes back when it needs memory. ``before`` is an idle worker that has loaded the same modules,
``kept`` what is there 20 seconds after the work, which the main thread spends in a read, as it waits for Spark;
``released`` after `penstock.state.free_memory.release_memory` in the main thread.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import machine

IDLE_S = 20.0  # longer than allocators keep pages, and than a worker takes to see that it is idle
BATCH = 10  # records


def memory() -> dict[str, int]:
    """The memory of this process."""
    rows = dict(line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    kilobytes = {name: int(text.split()[0]) << 10 for name, text in rows.items()}
    return {"own_bytes": kilobytes["Anonymous"], "mapped_bytes": kilobytes["Rss"] - kilobytes["Anonymous"]}


def worked(work: Any) -> dict[str, Any]:
    """Figures before, after and after the release."""
    from penstock.state.free_memory import release_memory

    found: dict[str, Any] = {"before": memory()}
    work()
    found["after"] = memory()
    waits_for_spark()
    found["kept"] = memory()
    release_memory()
    found["released"] = memory()
    return found


def waits_for_spark() -> None:
    """Block in a read, as a worker does between two tasks."""
    mine, theirs = socket.socketpair()
    threading.Timer(IDLE_S, theirs.send, [b"x"]).start()
    with mine.makefile("rb") as incoming:
        incoming.read(1)


def restored(root: str, keys: int) -> dict[str, Any]:
    from penstock.engines.threads.replicas.task_replica import TaskReplica
    from penstock.log.open import open_log
    from restore_thread import TABLE, TASK, Task

    with open_log(f"sqlite:///{root}/log.db") as log:
        small = Task(Path(root) / "small", log)  # everything is loaded
        small.replica.restore(log, {})
        task = Task(Path(root), log, "bench-kept")
        task.replica.close()
        opened: list[TaskReplica] = []

        def restore() -> None:
            opened.append(TaskReplica.open(task.app, TASK))
            opened[0].restore(log, {})

        found = worked(restore)
        assert len(opened[0].state.map(TABLE.name)) == keys
        opened[0].close()
    return found


def large(root: str) -> dict[str, Any]:
    import polars as pl

    from penstock.log.open import open_log

    with open_log(f"sqlite:///{root}/log.db") as log:
        log.create_topic("copies")

        def copy() -> None:
            end = log.end_offset("large", 0)
            for batch in log.iterate("large", 0, 0, end):
                frame = pl.from_arrow(batch.select(["key", "value"]))
                with log.transaction("") as transaction:
                    transaction.append("copies", 0, batch.drop_columns(["offset"]))
                assert len(frame)

        return worked(copy)


def batches(root: str) -> dict[str, Any]:
    import pyarrow as pa

    from penstock import Materialized, StreamsBuilder
    from penstock.config import StreamsConfig
    from penstock.engines.application.planning import PlannedApp, plan_for
    from penstock.engines.micro_batches.engine import prepare_job
    from penstock.engines.micro_batches.envelope import Envelope, EnvelopeKind
    from penstock.engines.micro_batches.worker.open_tasks import close_open_tasks
    from penstock.engines.micro_batches.worker.task_attempt import run_task
    from penstock.engines.micro_batches.worker.task_batch import TaskBatch
    from penstock.engines.spark.job import load_job
    from penstock.log.open import open_log
    from penstock.topology.plan.plan import TaskRun

    builder = StreamsBuilder()
    stream = builder.stream("large")
    stream.filter(lambda value: value != b"").to("kept-copies")
    stream.select_key(lambda value: value[:2]).repartition().to("more")
    stream.group_by_key().reduce(lambda _, later: later, Materialized("last"))
    settings = {"application.id": "kept", "bootstrap.servers": f"sqlite:///{root}/log.db", "state.dir": f"{root}/state"}
    settings |= {"default.key.serde": "bytes", "default.value.serde": "bytes"}
    config, topology = StreamsConfig(settings), builder.build()
    with open_log(config["bootstrap.servers"]) as log:
        for topic in ("kept-copies", "more"):
            log.create_topic(topic)
        lease = log.acquire_lease("kept", "bench", 600_000, force=True)
        app = PlannedApp(topology, config, plan_for(topology, config, log), log)
        job = load_job(prepare_job(app, lease, parallelism=2, until_latest=False).dump())
        task = TaskRun(next(each.id for each in job.plan.subtopologies if "large" in each.external_topics), 0)
        end = log.end_offset("large", 0)

        def run() -> None:
            for batch, start in enumerate(range(0, end, BATCH)):
                span = f"[{start}, {min(start + BATCH, end)}]".encode()
                inbox = [Envelope(0, 0, EnvelopeKind.RANGE, f"{task.subtopology}_0_0", "large", 0, "", span)]
                run_task(TaskBatch(job, 0, task, batch, inbox))

        pa.default_memory_pool().release_unused()
        found = worked(run)
        close_open_tasks()
    return found


def in_worker(*call: str) -> dict[str, Any]:
    """Run this script in a process with a worker's settings."""
    from penstock.engines.spark.worker_process import ENVIRONMENT

    done = subprocess.run(
        [sys.executable, __file__, "--worker", *call],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    return dict(json.loads(done.stdout))


def prepared(given: argparse.Namespace, root: Path) -> None:
    import pyarrow as pa

    from penstock.log.open import open_log
    from restore_thread import Task, fill

    with open_log(f"sqlite:///{root}/log.db") as log:
        task = Task(root, log, "bench-kept")
        fill(task, given.keys, given.value_bytes, 1)
        task.replica.close()
        shutil.rmtree(root / "replicas")
        log.create_topic("large")
        for _ in range(given.records):
            value = pa.array([os.urandom(given.record_bytes)], pa.large_binary())
            log.append("large", 0, pa.RecordBatch.from_pydict({"key": [b"key"], "value": value}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--records", type=int, default=20)
    parser.add_argument("--record-bytes", type=int, default=9_000_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        from penstock.engines.spark import worker_process
        from penstock.state.free_memory import keep_on_heap

        # As prepare_worker() does, which needs Spark.
        keep_on_heap(worker_process._KEPT_BYTES, worker_process._AT_ONCE_BYTES)  # noqa: SLF001
        worker_process._release_when_idle()  # noqa: SLF001
        what, root, *rest = given.worker
        works = {
            "restored": lambda: restored(root, int(rest[0])),
            "large": lambda: large(root),
            "batches": lambda: batches(root),
        }
        print(json.dumps(works[what]()))
        return
    facts = machine.facts("bench/memory_kept.py")
    root = Path(tempfile.mkdtemp(prefix="penstock-memory-"))
    try:
        prepared(given, root)
        results = {
            "restored": in_worker("restored", str(root), str(given.keys)),
            "large": in_worker("large", str(root)),
            "batches": in_worker("batches", str(root)),
        }
    finally:
        shutil.rmtree(root, ignore_errors=True)
    machine.show(facts | {"results": results}, given.json)


if __name__ == "__main__":
    main()
