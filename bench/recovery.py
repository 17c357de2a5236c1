"""How long a machine without a replica needs before a task with a million keys can run again: from each source of truth.

python bench/recovery.py [--keys 1000000] [--batch 100000] [--log URL] [--json FILE]

segments   the deltas of all batches, applied one after the other
snapshot   one snapshot
changelog  the segments are gone: the changelog topic is read to its end, put together to a snapshot (`penstock state
           rebuild`), and that is loaded; ``rebuild_s`` is the part until the snapshot is written

The changelog has a record for each change of each batch, so with ``--changes 3`` three times as many as keys. ``--log``
may name a Kafka broker (host:port) in place of an embedded log in a temporary directory.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import machine
from penstock.log.base import TopicLog
from penstock.log.open import open_log
from penstock.serde.column import Column
from penstock.state.changelog import changelog_format
from penstock.state.changelog.changelog_restore import StoreRestorer, put_snapshot
from penstock.state.segments.segment import SegmentHead
from penstock.state.segments.storage import open_storage
from penstock.state.snapshots import SnapshotPolicy
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.state.views import open_view
from state import SPECS, Clock

TABLE = SPECS[0]


def batches(keys: int, size: int, changes: int) -> Iterator[np.ndarray]:
    """The keys of each batch: all of them ``changes`` times."""
    for _ in range(changes):
        yield from (np.arange(start, min(start + size, keys)) for start in range(0, keys, size))


def fill(place: Path, keys: int, size: int, changes: int, log: TopicLog, topic: str, **options: int) -> int:
    """Runs the batches, with their changelog; gives how many."""
    form = changelog_format(TABLE)
    number = 0
    with opened(place, **options) as store:
        for number, each in enumerate(batches(keys, size, changes), 1):
            state = store.begin(number - 1)
            column = Column.of_series(pl.Series([f"key-{n:012d}" for n in each]))
            view = open_view(TABLE, state.map("table"), state.meta)
            view.put_columns(column, Column.of_series(pl.Series(each)), np.full(len(each), number, np.int64))
            segment = store.publish(number - 1, {})
            if topic:
                with log.transaction("") as transaction:
                    for rows in segment.change_batches("table"):
                        transaction.append(topic, 0, form.records(rows, {}))
        store.begin(number)
    return number


def opened(place: Path, **options: Any) -> TaskStore:
    return TaskStore(StatePlace(f"{place}/c", place / "r"), StateOwner("bench"), "0_0", [TABLE], **options)


def ready(place: Path, number: int, keys: int) -> float:
    """Seconds until the next batch could run, without a replica."""
    shutil.rmtree(place / "r", ignore_errors=True)
    clock = Clock()
    with opened(place) as store:
        count = len(store.begin(number).map("table"))
        seconds = clock.lap()
    if count != keys:
        raise SystemExit(f"{count} keys came back of {keys}")
    return seconds


def rebuilt(place: Path, number: int, log: TopicLog, topic: str) -> dict[str, Any]:
    """Writes a snapshot of the changelog in place of the segments."""
    shutil.rmtree(place / "c")
    clock = Clock()
    restorer = StoreRestorer(TABLE)
    for records in log.iterate(topic, 0, log.beginning_offset(topic, 0), log.end_offset(topic, 0)):
        restorer.add(records)
    read = clock.lap()
    head = SegmentHead("snapshot", "bench", "", "0_0", number - 1, number - 1, "")
    size = put_snapshot(open_storage(f"{place}/c", "0_0"), head, {"table": restorer.rows({})})
    written = clock.lap()
    return {"records": restorer.records, "read_s": read, "rebuild_s": read + written, "snapshot_bytes": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--changes", type=int, default=1, help="how often each key changes")
    parser.add_argument("--log", default="", help="where the changelog is")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="penstock-recovery-"))
    topic = f"recovery-{uuid.uuid4().hex[:8]}-changelog"
    results: dict[str, Any] = {}
    shape = (given.keys, given.batch, given.changes)
    log = open_log(given.log or f"sqlite:///{root / 'log.db'}")
    try:
        log.create_topic(topic, 1, {"cleanup.policy": "compact", "retention.ms": "-1"})
        number = fill(root / "segments", *shape, log, topic, policy=SnapshotPolicy(every=10**9, delta_bytes=2**60))
        results["segments"] = {"recovery_s": ready(root / "segments", number, given.keys)}
        fill(root / "snapshot", *shape, log, "", policy=SnapshotPolicy(every=number, delta_bytes=2**60))
        results["snapshot"] = {"recovery_s": ready(root / "snapshot", number, given.keys)}
        found = rebuilt(root / "segments", number, log, topic)
        results["changelog"] = found | {"recovery_s": found["rebuild_s"] + ready(root / "segments", number, given.keys)}
        log.delete_topic(topic)
    finally:
        log.close()
        shutil.rmtree(root)
    facts = {"keys": given.keys, "batch_keys": given.batch, "changes": given.changes, "log": given.log or "embedded"}
    report = machine.facts("bench/recovery.py") | facts | {"results": _rounded(results)}
    machine.show(report, given.json)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return round(value, 3) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
