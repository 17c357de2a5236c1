"""From a record to a readable row: python bench/lakehouse.py [--format delta|iceberg] [--rate N] [--seconds S] [--output FILE].

A process of its own runs the sink (`penstock connect standalone`), over one partition of an embedded log. First it
writes records that are there already, as fast as it can; then records come at a rate, and each batch of them counts
from when it was sent to when the table has its rows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parent))

from machine import facts, show
from penstock.log import Producer
from penstock.log.open import open_log

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()", "connect", "standalone"]
STEP_S, PATIENCE_S = 0.05, 300


class Table:
    """The table that is written."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        options = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/files"}
        if kind == "delta":
            self.config = {"connector.class": "DeltaSink", "table.uri": f"{folder}/table"}
        else:
            shown = ",".join(f"{name}:{value}" for name, value in options.items())
            self.config = {"connector.class": "IcebergSink", "table": "lake.hits", "catalog.options": shown}
            from pyiceberg.catalog import load_catalog

            self._catalog = load_catalog("default", **options)
        self._delta = None

    def rows(self) -> int:
        """How many rows a reader finds now."""
        if self.kind == "delta":
            from deltalake import DeltaTable

            if self._delta is None:
                if not DeltaTable.is_deltatable(self.config["table.uri"]):
                    return 0
                self._delta = DeltaTable(self.config["table.uri"])
            self._delta.update_incremental()
            return self._delta.count()
        if not self._catalog.table_exists("lake.hits"):
            return 0
        snapshot = self._catalog.load_table("lake.hits").current_snapshot()
        return 0 if snapshot is None else int(snapshot.summary["total-records"])


def records(first: int, count: int) -> list[bytes]:
    return [
        json.dumps({"n": n, "path": f"/item/{n % 997}", "user": n % 5000, "bytes": n % 4096, "seconds": n / 7}).encode()
        for n in range(first, first + count)
    ]


def send(producer: Producer, values: list[bytes]) -> None:
    for value in values:
        producer.send("hits", value)
    producer.flush()


def run(kind: str, rate: int, seconds: float, ready: int, interval_ms: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="lakehouse-") as name:
        folder = Path(name)
        table, url = Table(kind, folder), f"sqlite:///{folder}/log.db"
        worker = {
            "bootstrap.servers": url, "offset.storage.file.filename": f"{folder}/offsets", "listeners": "http://127.0.0.1:0",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false",
            "connector.client.config.override.policy": "All",
        }  # fmt: skip
        sink = {
            "name": "lake", "topics": "hits", "flush.interval.ms": str(interval_ms), "flush.size": "100000",
            "consumer.override.max.poll.records": "20000", **table.config,
        }  # fmt: skip
        for file, given in (("worker", worker), ("sink", sink)):
            (folder / f"{file}.properties").write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        with open_log(url) as log:
            log.create_topic("hits", 1)
            with Producer(log) as producer:
                send(producer, records(0, ready))
                with (folder / "log").open("wb") as out:
                    files = [str(folder / "worker.properties"), str(folder / "sink.properties")]
                    process = subprocess.Popen([*COMMAND, *files], cwd=folder, stdout=out, stderr=out)
                try:
                    return measured(table, producer, psutil.Process(process.pid), rate, seconds, ready)
                finally:
                    process.terminate()
                    process.wait(60)


def measured(table: Table, producer: Producer, process: psutil.Process, rate: int, seconds: float, ready: int):
    until(lambda: table.rows() > 0)
    began, first, cpu = time.monotonic(), table.rows(), cpu_of(process)
    until(lambda: table.rows() >= ready)
    took, used = time.monotonic() - began, cpu_of(process) - cpu
    behind = max(ready - first, 1)
    found: dict[str, object] = {
        "ready_records": ready,
        "rows_per_s": round(behind / took),
        "cpu_us_per_row": round(used / behind * 1e6, 2),
    }
    seen: list[tuple[float, int]] = []
    stopped = Event()

    def watch() -> None:
        while not stopped.wait(0.01):
            seen.append((time.monotonic(), table.rows()))

    step = int(rate * STEP_S)
    batches = [records(ready + at * step, step) for at in range(int(seconds / STEP_S))]
    sent: list[tuple[float, int]] = []
    watcher = Thread(target=watch)
    watcher.start()
    cpu, began, total = cpu_of(process), time.monotonic(), ready
    for number, batch in enumerate(batches):
        time.sleep(max(began + number * STEP_S - time.monotonic(), 0))
        total += len(batch)
        sent.append((time.monotonic(), total))
        send(producer, batch)
    until(lambda: table.rows() >= total)
    time.sleep(0.1)
    stopped.set()
    watcher.join()
    times, rows = np.array([at for at, _ in seen]), np.array([count for _, count in seen])
    waits = [times[np.searchsorted(rows, count)] - at for at, count in sent]
    reached = (total - ready) / (sent[-1][0] - began)
    return found | {
        "rate": rate,
        "rate_reached": round(reached),
        "seconds_to_row": {f"p{q}": round(float(np.percentile(waits, q)), 3) for q in (50, 95, 99, 100)},
        "cpu_of_sink": round((cpu_of(process) - cpu) / (time.monotonic() - began), 2),
    }


def until(check) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not check():
        if time.monotonic() > deadline:
            raise SystemExit("the sink does not get on")
        time.sleep(0.02)


def cpu_of(process: psutil.Process) -> float:
    every = [process, *process.children(recursive=True)]
    return sum(sum(each.cpu_times()[:2]) for each in every)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=("delta", "iceberg"), action="append")
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--ready", type=int, default=500_000)
    parser.add_argument("--interval", type=int, default=200, help="flush.interval.ms")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    result: dict[str, object] = {"facts": facts("bench/lakehouse.py")}
    for kind in args.format or ("delta", "iceberg"):
        result[kind] = run(kind, args.rate, args.seconds, args.ready, args.interval)
    show(result, args.output)


if __name__ == "__main__":
    main()
