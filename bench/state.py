"""What state costs: microseconds per key of each step of a batch, and recovery of a store of a million keys.

python bench/state.py [--keys 1000000] [--batch 100000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from penstock.serde.column import Column
from penstock.serde.numbers import NumberSerde
from penstock.serde.text import StringSerde
from penstock.state.task_store import TaskStore
from penstock.state.views import open_view
from penstock.topology.stores import StoreSpec

SPECS = [
    StoreSpec("table", "timestamped", StringSerde(), NumberSerde("long")),
    StoreSpec(
        "windows",
        "window",
        StringSerde(),
        NumberSerde("long"),
        timestamped=True,
        window_size_ms=60_000,
        retention_ms=86_400_000,
    ),
]


class Clock:
    """Seconds since the last lap."""

    def __init__(self):
        self.at = time.perf_counter()

    def lap(self):
        now = time.perf_counter()
        passed, self.at = now - self.at, now
        return passed


def steps(root: Path, keys: int, size: int) -> dict[str, float]:
    """Fills a table, then measures batches of random keys; the best of three."""
    random = np.random.default_rng(1)
    best: dict[str, float] = {}
    with TaskStore.open(f"{root}/c", root / "r", "0_0", SPECS, application_id="bench", snapshot_every=10**9) as store:
        fill(store, keys, size)
        first = -(-keys // size)
        for batch in range(first, first + 3):
            number = random.choice(keys, size, replace=False)
            column = Column.of_series(pl.Series([f"key-{n:012d}" for n in number]))
            times = np.full(size, batch, np.int64)
            starts = np.full(size, 60_000 * batch, np.int64)
            clock = Clock()
            state = store.begin(batch)
            laps = {"begin": clock.lap()}
            table = open_view(SPECS[0], state.map("table"), state.meta)
            windows = open_view(SPECS[1], state.map("windows"), state.meta)
            clock.lap()
            values, _ = table.get_columns(column)
            laps["table get"] = clock.lap()
            values = Column.of_series(values.series() + 1)
            clock.lap()
            table.put_columns(column, values, times)
            laps["table put"] = clock.lap()
            windows.get_columns(column, starts)
            laps["window get"] = clock.lap()
            windows.put_columns(column, starts, values, times)
            laps["window put"] = clock.lap()
            store.publish(batch, {})
            laps["publish (both)"] = clock.lap()
            store.begin(batch + 1)
            laps["apply (both)"] = clock.lap()
            for name, seconds in laps.items():
                best[name] = min(best.get(name, 1e9), seconds / size * 1e6)
    return {name: round(us, 3) for name, us in best.items() if name != "begin"}


def fill(store: TaskStore, keys: int, size: int) -> None:
    for batch, start in enumerate(range(0, keys, size)):
        state = store.begin(batch)
        number = np.arange(start, min(start + size, keys))
        column = Column.of_series(pl.Series([f"key-{n:012d}" for n in number]))
        open_view(SPECS[0], state.map("table"), state.meta).put_columns(
            column, Column.of_series(pl.Series(number)), np.full(len(number), batch, np.int64)
        )
        store.publish(batch, {})


def recovery(root: Path, keys: int, size: int) -> dict[str, float]:
    """Seconds until a machine without a replica can run the next batch."""
    batches = -(-keys // size)
    seconds = {}
    for name, every in (("deltas", 10**9), ("snapshot", batches)):
        place = root / name
        with TaskStore.open(
            f"{place}/c", place / "r", "0_0", SPECS, application_id="bench", snapshot_every=every, snapshot_bytes=2**60
        ) as store:
            fill(store, keys, size)
            store.begin(batches)
        shutil.rmtree(place / "r")
        clock = Clock()
        with TaskStore.open(f"{place}/c", place / "r", "0_0", SPECS, application_id="bench") as store:
            count = len(store.begin(batches).map("table"))
            seconds[name] = round(clock.lap(), 3)
        if count != keys:
            raise SystemExit(f"{count} keys came back of {keys}")
    return seconds


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--keys", type=int, default=1_000_000)
    arguments.add_argument("--batch", type=int, default=100_000)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    root = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        results = {
            "keys": given.keys,
            "batch_keys": given.batch,
            "us_per_key": steps(root / "steps", given.keys, given.batch),
            "recovery_s": recovery(root, given.keys, given.batch),
        }
    finally:
        shutil.rmtree(root)
    text = json.dumps(results, indent=2)
    print(text)
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
