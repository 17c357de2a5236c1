"""How the upkeep of one task's state grows with its size: batches beside snapshots, what is written, recovery.

    python bench/scale_state.py --keys 2000000 [--batches 300] [--changes 2000] [--json FILE]

A store gets its keys (values of 100 bytes), then batches that change some of them at random. The time of a batch is what the
state takes of it: `begin` (which applies the batch before) and `publish`. In between, snapshots are written and deltas
merged in a thread of the same process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from penstock.state.segments.storage import open_storage
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.topology.stores import StoreSpec

SPECS = [StoreSpec("table", "key_value", None, None)]
LOADED_AT_ONCE = 100_000
VALUE_BYTES = 100


def opened(place: Path) -> TaskStore:
    return TaskStore(StatePlace(str(place / "c"), place / "r", durable=False), StateOwner("bench"), "0_0", SPECS)


def batch(store: TaskStore, number: int, keys: list[bytes]) -> tuple[float, float]:
    """Seconds of `begin` and `publish`."""
    values = [os.urandom(VALUE_BYTES // 2).hex().encode() for _ in keys]
    started = time.perf_counter()
    state = store.begin(number)
    begun = time.perf_counter()
    state.map("table").put_many(keys, values)
    written = time.perf_counter()
    store.publish(number, {})
    return begun - started, time.perf_counter() - written


def measure(place: Path, keys: int, batches: int, changes: int) -> dict[str, Any]:
    """Load, run and recover."""
    chooser = random.Random(1)
    store = opened(place)
    started = time.perf_counter()
    number = 0
    for first in range(0, keys, LOADED_AT_ONCE):
        batch(store, number, [b"%012d" % n for n in range(first, min(keys, first + LOADED_AT_ONCE))])
        number += 1
    loaded_s = time.perf_counter() - started
    storage = open_storage(str(place / "c"), "0_0")
    written: dict[str, int] = {}
    times: list[tuple[float, float]] = []
    busy = 0
    for _ in range(batches):
        times.append(batch(store, number, [b"%012d" % chooser.randrange(keys) for _ in range(changes)]))
        number += 1
        busy += store.is_tidying
        written |= {str(name): size for name, size in storage.sizes().items() if name.kind != "delta"}
    store.close()
    sizes = storage.sizes()
    shutil.rmtree(place / "r")
    again = opened(place)
    started = time.perf_counter()
    again.begin(number)
    recovery_s = time.perf_counter() - started
    entries = len(again.begin(number).map("table"))
    again.close()
    begin, publish = sorted(first for first, _ in times), sorted(second for _, second in times)
    return {
        "keys": keys,
        "entries": entries,
        "batches": batches,
        "changes": changes,
        "load_s": loaded_s,
        "begin_median_s": median(begin),
        "begin_worst_s": begin[-1],
        "publish_median_s": median(publish),
        "publish_worst_s": publish[-1],
        "batches_beside_upkeep": busy,
        "snapshots": sum(1 for name in written if name.endswith("snapshot")),
        "snapshot_bytes": sum(size for name, size in written.items() if name.endswith("snapshot")),
        "merged": sum(1 for name in written if name.endswith("merged")),
        "merged_bytes": sum(size for name, size in written.items() if name.endswith("merged")),
        "files": len(sizes),
        "stored_bytes": sum(sizes.values()),
        "recovery_s": recovery_s,
    }


def main() -> None:
    """Prints the figures, and writes them as JSON on request."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, nargs="+", default=[2_000_000])
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--changes", type=int, default=2_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results = []
    for keys in given.keys:
        with tempfile.TemporaryDirectory() as place:
            found = measure(Path(place), keys, given.batches, given.changes)
        results.append(found)
        print(json.dumps({name: round(value, 4) for name, value in found.items()}), flush=True)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
