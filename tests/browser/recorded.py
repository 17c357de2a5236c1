"""A console over figures that a run on Spark has reported, and a log with topics: what the browser tests look at."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.console.app_view import BatchLine
from penstock.console.applications import Applications, OwnApplication
from penstock.console.recorder import HISTORY, NOW, Recorder, Watched, read_facts, write_facts
from penstock.console.topology_drawing import drawing_of
from penstock.console.web.site import Permissions, Site
from penstock.engines.app_metrics import beginnings_of, ends_of, time_at
from penstock.engines.spark.progress import BatchProgress
from penstock.errors import StateError
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.open import open_log
from penstock.log.topic_formats import TopicFormat, note_formats
from penstock.metrics import PartitionLag
from penstock.metrics.lag import LagWatch
from penstock.state.restores.restore_progress import Restore
from penstock.tools.demo.access_log import config, topology

APPLICATION = config["application.id"]
PROGRESS = [BatchProgress(**each) for each in json.loads((Path(__file__).parent / "progress.json").read_text())]
EARLIER = 400  # batches that the checkpoint has already
SYSTEMS = ("Windows", "macOS", "Linux", "Android", "iOS")


def records(rows: list[tuple[int, str | None, str | None]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "timestamp": pa.array([row[0] for row in rows], pa.int64()),
            "key": pa.array([None if row[1] is None else row[1].encode() for row in rows], pa.large_binary()),
            "value": pa.array([None if row[2] is None else row[2].encode() for row in rows], pa.large_binary()),
        }
    )


def fill(log: TopicLog, now_ms: int) -> None:
    """The topics of the application, as far as it has read them and 60 records more, and one of orders in JSON."""
    line = '10.0.0.7 - - [23/Nov/2026:04:03:24 +0000] "GET /shop HTTP/1.1" 200 512 "-" "Mozilla/5.0 (Windows NT)"'
    log.create_topic("access_log", 4)
    for partition in range(4):
        count = 5500 + (60 if partition == 3 else 0)
        rows = [(now_ms - 41_000 - (count - n) * 20, None, line) for n in range(count)]
        log.append("access_log", partition, records(rows))
    log.create_topic("os-check", 1)
    log.create_topic("os-check-os-counts-repartition", 4)
    log.create_topic("access_log-bad", 1)
    log.append("access_log-bad", 0, records([(now_ms - 9_000, None, "rubbish <script>alert(1)</script>")]))
    log.create_topic("orders", 3)
    for n in range(300):
        order = {"id": n, "user": f"u{n % 17}", "total": n * 1.5, "items": ["tea"] * (n % 4), "note": "<b>&</b>"}
        value = json.dumps(order) if n % 50 else None
        log.append("orders", n % 3, records([(now_ms - 600_000 + n * 1000, f"u{n % 17}", value)]))
    log.create_topic("empty", 8)
    note_formats(log, "shop", {"orders": TopicFormat("string", "json")})
    log.commit_offsets("audit", {TopicPartition("orders", n): 60 for n in range(3)})
    log.commit_offsets(APPLICATION, {TopicPartition("access_log", n): 5500 for n in range(4)})


def history(now_ms: int, count: int = EARLIER) -> list[BatchLine]:
    """Batches of the last minutes, two a second."""
    found = []
    for n in range(count):
        wave = 1 + 0.35 * math.sin(n / 17) + 0.1 * math.sin(n / 3)
        steps = {"read": 0.02 * wave, "process": 0.21 * wave, "publish": 0.05, "write": 0.04 * wave}
        seconds = round(sum(steps.values()) + 0.08, 4)
        rows = int(2400 * wave)
        at = now_ms - (count - n) * 500 - 3000
        lag = int(300 + n * 3 * wave)
        found.append(
            BatchLine(n, at, seconds, rows, rows // 60, n % 9 // 8 * 12, lag, round(1.2 + wave / 3, 2), 41_000, steps)
        )
    return found


@dataclass
class Recorded:
    """A console's site, its log, and its recorder, which more batches may be given to."""

    site: Site
    log: TopicLog
    recorder: Recorder
    root: Path
    positions: dict[str, int]
    batches: int = EARLIER
    restores: list[Restore] = field(default_factory=list)  # that are under way now

    def batch(self, **changes: Any) -> int:
        """Report one more batch."""
        source = PROGRESS[self.batches % len(PROGRESS)]
        facts = {name: getattr(source, name) for name in source.__slots__} | {"batch": self.batches} | changes
        self.positions |= {name: end for task in facts["tasks"] for name, end in task.get("ends", {}).items()}
        self.recorder(BatchProgress(**facts))
        self.batches += 1
        return self.batches - 1

    def batch_tasks(self) -> list[dict[str, Any]]:
        """Return the tasks of a batch, to be changed and reported."""
        return [dict(task) for task in PROGRESS[0].tasks]

    def reject(self, topic: str, partition: int, offset: int, why: str) -> None:
        """Report a record as dropped, and send it to the topic of dead letters."""
        headers = {"exception": "builtins.ValueError", "message": "an even length", "topic": topic,
                   "partition": str(partition), "offset": str(offset)}  # fmt: skip
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.large_binary())]))
        named = [{"key": f"__streams.errors.{name}", "value": text.encode()} for name, text in headers.items()]
        letter = records([(unix_ms(), "k", "rejected")])
        self.log.append("access_log-bad", 0, letter.append_column("headers", pa.array([named], kind)))
        tasks = [dict(task) for task in PROGRESS[0].tasks]
        node = "KSTREAM-MAPVALUES-0000000001"
        causes = [[node, why, "", "", 0, 1, [[topic, partition, offset, ""]]]]
        counts = {"reasons": [[node, why, 1]], "causes": causes}
        tasks[0] = {**tasks[0], "counts": {**tasks[0].get("counts", {}), **counts}}
        self.settle(self.batch(tasks=tuple(tasks), dropped=1))

    def settle(self, number: int, *, written: bool = False) -> None:
        """Wait until the recorder has taken a batch, and has written it if that matters."""
        deadline = time.monotonic() + 60
        checkpoint = str(self.root / "checkpoint")
        while time.monotonic() < deadline:
            found = read_facts(checkpoint, NOW) if written else self.recorder.document()
            # The lines are there at once, the sums when the recorder has taken the batch.
            if found and "sums" in found and found["sums"]["batches"] > number - EARLIER:
                return
            time.sleep(0.05)
        raise TimeoutError(f"batch {number} is not recorded")


@contextmanager
def recorded(root: Path, *, shown: Any = topology, state: str = "RUNNING", **permissions: Any) -> Iterator[Recorded]:
    now_ms = unix_ms()
    root.mkdir(exist_ok=True, parents=True)
    log = open_log(f"sqlite:///{root / 'log.db'}")
    if not log.topics():
        fill(log, now_ms)
    log.acquire_lease(APPLICATION, "test", 600_000)
    checkpoint = root / "checkpoint"
    checkpoint.mkdir(exist_ok=True, parents=True)
    write_facts(str(checkpoint), NOW, {"lines": [line.row() for line in history(now_ms)]})
    minutes = [[now_ms - n * 60_000, 120, 48.0, 288_000, 4800, 40, 300 + n] for n in range(200, 0, -1)]
    write_facts(str(checkpoint), HISTORY, {"minutes": minutes})
    recorder = Recorder(APPLICATION, lambda: state)
    facts = {
        "mode": "micro_batch", "version": "0", "host": "worker-1", "pid": 1, "epoch": 3,
        "guarantee": "exactly_once_v2", "log": log.url, "tasks": {"0": 4},
        "settings": {"application.id": APPLICATION, "errors.dead.letter.queue.topic.name": "access_log-bad"},
    }  # fmt: skip
    positions: dict[str, int] = {}
    watch, topics = LagWatch(unix_ms), ("access_log",)

    def lags() -> tuple[PartitionLag, ...]:
        watch.look(positions, ends_of(log, topics), partial(time_at, log))
        return watch.lags()

    restores: list[Restore] = []
    recorder.begin(
        Watched(
            str(checkpoint), lags, lambda: beginnings_of(log, topics), facts, lambda: drawing_of(shown),
            restores=lambda: [each.document() for each in restores],
        )
    )  # fmt: skip

    def queries() -> Any:
        raise StateError("the figures are recorded: there is no state", hint="Run the application.")

    own = OwnApplication(APPLICATION, recorder, queries)
    applications = Applications(log, {"bootstrap.servers": log.url, "state.dir": str(root / "state")}, own=own)
    site = Site(applications, log, Permissions(**permissions))
    found = Recorded(site, log, recorder, root, positions, restores=restores)
    for _ in range(len(PROGRESS)):
        found.batch()
    try:
        yield found
    finally:
        recorder.close()
        applications.close()
        log.close()
