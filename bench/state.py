"""What state costs: microseconds per key of each step of a batch, recovery of a store of a million keys, and memory.

python bench/state.py [--keys 1000000] [--batch 100000] [--memory-keys 5000000] [--json FILE]

Memory is the peak of a process's own pages (anonymous ones; those of files are the page cache's, which the system takes
back when it needs them), in a process for each of: filling the store batch by batch with snapshots in between, ten
batches of random keys, and recovery from deltas and from a snapshot.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import polars as pl

import machine
from penstock.serde.column import Column
from penstock.serde.primitives import NumberSerde, StringSerde
from penstock.state.snapshots import SnapshotPolicy
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
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
    with TaskStore(
        StatePlace(f"{root}/c", root / "r"), StateOwner("bench"), "0_0", SPECS, policy=SnapshotPolicy(every=10**9)
    ) as store:
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
        with TaskStore(
            StatePlace(f"{place}/c", place / "r"),
            StateOwner("bench"),
            "0_0",
            SPECS,
            policy=SnapshotPolicy(every=every, delta_bytes=2**60),
        ) as store:
            fill(store, keys, size)
            store.begin(batches)
        shutil.rmtree(place / "r")
        clock = Clock()
        with TaskStore(StatePlace(f"{place}/c", place / "r"), StateOwner("bench"), "0_0", SPECS) as store:
            count = len(store.begin(batches).map("table"))
            seconds[name] = round(clock.lap(), 3)
        if count != keys:
            raise SystemExit(f"{count} keys came back of {keys}")
    return seconds


def memory(root: Path, keys: int, size: int) -> dict[str, int]:
    """Peak MiB of each step, and of a process that has only imported everything."""
    peaks = {"imports": peak_mb(import_only)}
    for name, every in (("deltas", 10**9), ("snapshot", 20)):
        place = root / name
        peaks[f"filling, {name}"] = peak_mb(filled, place, keys, size, every)
        shutil.rmtree(place / "r")
        peaks[f"recovery, {name}"] = peak_mb(random_batches, place, keys, size, 0)
        peaks[f"batches, {name}"] = peak_mb(random_batches, place, keys, size, 10)
    return peaks


def peak_mb(work: Callable[..., None], *arguments: object) -> int:
    process = get_context("spawn").Process(target=work, args=arguments)
    process.start()
    peak = 0
    while process.is_alive():
        peak = max(peak, machine.own_bytes(process.pid))
        time.sleep(0.02)
    if process.exitcode:
        raise SystemExit(f"{work.__name__}{arguments} failed")
    return round(peak / 2**20)


def import_only() -> None:
    time.sleep(0.5)


def filled(place: Path, keys: int, size: int, every: int) -> None:
    with opened(place, policy=SnapshotPolicy(every=every, delta_bytes=2**60)) as store:
        fill(store, keys, size)
        store.begin(-(-keys // size))


def opened(place: Path, **options: int) -> TaskStore:
    return TaskStore(StatePlace(f"{place}/c", place / "r"), StateOwner("bench"), "0_0", SPECS, **options)


def random_batches(place: Path, keys: int, size: int, batches: int) -> None:
    """Recovers, then reads and changes random keys."""
    random = np.random.default_rng(1)
    first = -(-keys // size)
    with opened(place, policy=SnapshotPolicy(every=10**9, delta_bytes=2**60)) as store:
        if len(store.begin(first).map("table")) != keys:
            raise SystemExit("keys are missing")
        for batch in range(first, first + batches):
            state = store.begin(batch)
            table = open_view(SPECS[0], state.map("table"), state.meta)
            column = Column.of_series(pl.Series([f"key-{n:012d}" for n in random.choice(keys, size, replace=False)]))
            values, _ = table.get_columns(column)
            table.put_columns(column, Column.of_series(values.series() + 1), np.full(size, batch, np.int64))
            store.publish(batch, {})


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--keys", type=int, default=1_000_000)
    arguments.add_argument("--batch", type=int, default=100_000)
    arguments.add_argument("--memory-keys", type=int, default=5_000_000)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    root = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        results = {
            "keys": given.keys,
            "batch_keys": given.batch,
            "us_per_key": steps(root / "steps", given.keys, given.batch),
            "recovery_s": recovery(root, given.keys, given.batch),
            "memory_keys": given.memory_keys,
            "peak_own_mb": memory(root / "memory", given.memory_keys, given.batch),
        }
    finally:
        shutil.rmtree(root)
    machine.show(results, given.json)


if __name__ == "__main__":
    main()
