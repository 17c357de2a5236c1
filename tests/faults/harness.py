"""What the fault tests share: an application over a directory, ways to run it, and all that it has left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from fault_app import APPLICATION, settings, topology
from penstock import KafkaStreams
from penstock.log.open import open_log
from penstock.state.segments.segment import SegmentName
from penstock.state.task_store import StateOwner, StatePlace, TaskStore

APP = Path(__file__).with_name("fault_app.py")
START = 1_790_000_000_000
Outputs = dict[str, list[Counter[tuple[bytes, bytes]]]]
Stores = dict[str, dict[bytes, bytes]]


def url(root: Path) -> str:
    return f"sqlite:///{root / 'log.db'}"


def prepare(root: Path) -> None:
    with open_log(url(root)) as log:
        for topic in ("words", "counts", "upper"):
            log.create_topic(topic, 2)
    append(root)


def append(root: Path, first: int = 0, records: int = 60) -> None:
    numbers = range(first, first + records)
    with open_log(url(root)) as log:
        for partition in range(2):
            columns = {
                "timestamp": pa.array([START + i for i in numbers], pa.int64()),
                "key": pa.array([str(i).encode() for i in numbers], pa.large_binary()),
                "value": pa.array([f"w{(i + partition) % 4}".encode() for i in numbers], pa.large_binary()),
            }
            log.append("words", partition, pa.RecordBatch.from_pydict(columns))


def environment(fault: str = "") -> dict[str, str]:
    """For a child process: this one's, with this fault and no other."""
    kept = {name: value for name, value in os.environ.items() if name != "PENSTOCK_FAULT"}
    return {**kept, "PENSTOCK_FAULT": fault} if fault else kept


def run(root: Path, fault: str = "", master: str = "local[2]") -> int:
    """The application in a process of its own, until the end of its topics."""
    return run_captured(root, fault, master).returncode


def run_captured(root: Path, fault: str = "", master: str = "local[2]") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(APP), str(root), master]
    return subprocess.run(
        command, env=environment(fault), capture_output=True, timeout=180, check=False, encoding="utf-8"
    )


def run_here(root: Path, spark: Any, **more: Any) -> KafkaStreams:
    """The application in this process, on a session that is there already: seconds faster."""
    app = KafkaStreams(topology(), {**settings(root), **more}, session=spark)
    app.run(until="latest")
    return app


def outputs(root: Path) -> Outputs:
    """What the output topics hold, by partition; partitions as sets with counts, as interleaving may differ."""
    found: Outputs = {}
    with open_log(url(root)) as log:
        for topic in ("counts", "upper"):
            for partition in range(2):
                rows = log.read(topic, partition, 0, 100_000).records
                pairs = zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True)
                found.setdefault(topic, []).append(Counter(pairs))
    return found


def stores(root: Path) -> Stores:
    """Task -> the rows of its store, rebuilt from the segments of all committed batches and nothing else."""
    checkpoint = checkpoint_of(root)
    newest = max(int(path.name) for path in (checkpoint / "spark" / "commits").iterdir() if path.name.isdecimal())
    specs = list(topology().stores.values())
    found: Stores = {}
    for task in ("1_0", "1_1"):
        with (
            tempfile.TemporaryDirectory() as scratch,
            TaskStore(StatePlace(str(checkpoint), scratch), StateOwner(APPLICATION), task, specs) as store,
        ):
            found[task] = dict(store.read_committed(newest).map("counts").scan())
    return found


def results(root: Path) -> tuple[Outputs, Stores]:
    """Outputs and stores after the end of all topics."""
    with open_log(url(root)) as log:
        assert log.committed_offsets(APPLICATION) == log.end_offsets(["words"])
    return outputs(root), stores(root)


def checkpoint_of(root: Path) -> Path:
    return root / "state" / APPLICATION / "checkpoint"


def segments(root: Path, task: str) -> list[Path]:
    """The files of a task's deltas, oldest first."""
    directory = checkpoint_of(root) / "state" / task
    named = [(SegmentName.parse(path.name), path) for path in directory.glob("[0-9]*.delta")]
    return [path for name, path in sorted((n, p) for n, p in named if n is not None)]


def unfinished(root: Path) -> list[Path]:
    """Files of ours that a write which failed has left behind; Spark leaves some of its own, which it overlooks."""
    checkpoint = checkpoint_of(root)
    return [*checkpoint.glob(".plan.json*"), *(checkpoint / "state").rglob(".*")]
