"""One run in a process of its own; run.py starts it. Prints one line of JSON behind the word RESULT.

python bench/measure.py penstock|pyspark WORKLOAD DATA_DIRECTORY WORK_DIRECTORY
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql.streaming import StreamingQueryListener

import answers
from datasets import PARTITIONS
from penstock import KafkaStreams
from penstock.log.open import open_log
from prepare import PARQUET_ROWS, log_url
from workloads import TOPICS, WORKLOADS

MASTER = "local[2]"
BATCH_RECORDS = 500_000
WARM_UP_BATCHES = 1


def cpu_s() -> float:
    """CPU seconds so far of this process, the JVM and the Python workers, those that have ended included."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


def steady(ends: list[tuple[float, int]], cpu: list[float]) -> dict[str, Any]:
    """From (time of its end, records) and CPU time of each batch: what is behind the warm-up over the time it took.

    Records per CPU second do not depend on what else the machine does: one whole core that works on nothing else.
    """
    measured = ends[WARM_UP_BATCHES:]
    if not measured:
        raise SystemExit(f"only {len(ends)} batches: give more records with --n")
    records = sum(records for _, records in measured)
    seconds = measured[-1][0] - ends[WARM_UP_BATCHES - 1][0]
    return {
        "records_per_s": round(records / seconds), "measured_records": records, "measured_s": round(seconds, 3),
        "cpu_s": round(cpu[-1] - cpu[WARM_UP_BATCHES - 1], 2),
        "records_per_cpu_s": round(records / max(cpu[-1] - cpu[WARM_UP_BATCHES - 1], 0.01)),
        "batches": [[round(at - ends[0][0], 3), n] for at, n in ends],
    }  # fmt: skip


def penstock(workload: str, data: Path, work: Path) -> dict[str, Any]:
    url = log_url(data, TOPICS[workload][0])
    with open_log(url) as log:
        if any(topic.name == "out" for topic in log.topics()):
            log.delete_topic("out")
        log.create_topic("out", PARTITIONS)
    app = KafkaStreams(
        WORKLOADS[workload](),
        {
            "application.id": f"bench-{workload}",
            "bootstrap.servers": url,
            "state.dir": str(work),
            "spark.master": MASTER,
            "processing.mode": "micro_batch",
            "commit.interval.ms": 0,
            "penstock.max.records.per.batch": BATCH_RECORDS,
        },
    )
    ends: list[tuple[float, int]] = []
    cpu: list[float] = []
    steps: dict[str, float] = {}
    written = dropped = 0

    def on(progress) -> None:
        nonlocal written, dropped
        if progress.records_in:
            ends.append((time.perf_counter(), progress.records_in))
            cpu.append(cpu_s())
        written += progress.records_out
        dropped += progress.dropped
        if len(ends) > WARM_UP_BATCHES:
            for task in progress.tasks:
                for step, seconds in task["seconds"].items():
                    steps[step] = round(steps.get(step, 0.0) + seconds, 3)

    app.add_progress_listener(on)
    begin = time.perf_counter()
    app.run(until="latest")
    result = steady(ends, cpu)
    compared = answers.check(workload, data, url)
    return result | {
        "total_s_with_start": round(time.perf_counter() - begin, 2), "records_written": written, "dropped": dropped,
        "rows_verified": compared, "task_seconds_by_step": steps,
    }  # fmt: skip


class _Listener(StreamingQueryListener):
    def __init__(self):
        self.cpu: list[float] = []

    def onQueryStarted(self, event) -> None: ...  # noqa: N802 - Spark's interface

    def onQueryTerminated(self, event) -> None: ...  # noqa: N802

    def onQueryProgress(self, event) -> None:  # noqa: N802
        if event.progress.numInputRows:
            self.cpu.append(cpu_s())


def pyspark(workload: str, data: Path, work: Path) -> dict[str, Any]:
    import raw_pyspark
    from penstock.engines.spark.session import spark_for

    checkpoint = str(work / "checkpoint")
    settings = {"spark.master": MASTER, "spark.sql.shuffle.partitions": PARTITIONS, "spark.sql.session.timeZone": "UTC"}
    session = spark_for(settings, f"raw-{workload}", checkpoint).session
    records = (
        session.readStream.schema("timestamp bigint, key binary, value binary")
        .option("maxFilesPerTrigger", BATCH_RECORDS // PARQUET_ROWS)
        .parquet(str(data / TOPICS[workload][0]))
    )
    frame = raw_pyspark.w3(records) if workload == "w3" else raw_pyspark.w2(records, by_os=workload == "w2a")
    writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
    listener = _Listener()
    session.streams.addListener(listener)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    time.sleep(1)  # the listener is told a little later
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    at, ends = 0.0, []
    for each in progress:
        at += each["durationMs"]["triggerExecution"] / 1000
        ends.append((at, each["numInputRows"]))
    groups = progress[-1]["stateOperators"][0]["numRowsTotal"]
    expected = answers.ANSWERS[workload](data).height
    if groups != expected:
        raise SystemExit(f"plain PySpark holds {groups} groups for {workload}, expected {expected}")
    session.stop()
    return steady(ends, listener.cpu) | {"groups_verified": groups}


if __name__ == "__main__":
    engine, name, *places = sys.argv[1:]
    run = {"penstock": penstock, "pyspark": pyspark}[engine]
    print("RESULT", json.dumps(run(name, *(Path(place) for place in places))))
