"""Speed of the embedded log on one core: python bench/log.py [--records N] [--output FILE]."""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.log.open import open_log

LINE_BYTES = 150
BATCH = 50_000


def access_log_lines(count: int) -> pa.RecordBatch:
    rng = np.random.default_rng(1)
    draw = rng.integers(0, 90_000, (count, 4))
    lines = [
        f'{a % 255}.{b % 255}.{c % 255}.7 - - [21/Nov/2026:03:{a % 60:02d}:05 +0000] "GET /articles/{b % 5000} '
        f'HTTP/1.1" 200 {d} "-" "Mozilla/5.0 (X11; Linux x86_64)"'.ljust(LINE_BYTES)[:LINE_BYTES].encode()
        for a, b, c, d in draw.tolist()
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(range(count), pa.int64()), pa.array(lines, pa.large_binary())], names=["timestamp", "value"]
    )


def measure(url: str, batch: pa.RecordBatch, records: int) -> dict[str, float]:
    with open_log(url) as log:
        log.create_topic("lines")
        start = time.perf_counter()
        for _ in range(records // BATCH):
            log.append("lines", 0, batch)
        append_s = time.perf_counter() - start
        start = time.perf_counter()
        read = sum(part.num_rows for part in log.iterate("lines", 0, 0, records))
        read_s = time.perf_counter() - start
        assert read == records
        one = batch.slice(0, 1)
        start = time.perf_counter()
        for _ in range(500):
            log.append("lines", 0, one)
        single_s = time.perf_counter() - start
        stored = sum(each.bytes for each in log.stats().values())
    return {
        "append_records_per_s": round(records / append_s),
        "read_records_per_s": round(records / read_s),
        "append_of_one_record_us": round(single_s / 500 * 1e6),
        "stored_bytes_per_record": round(stored / records, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "log.json")
    given = parser.parse_args()
    records = max(given.records // BATCH, 1) * BATCH
    batch = access_log_lines(BATCH)
    pa.set_cpu_count(1)
    results = {}
    with tempfile.TemporaryDirectory() as directory:
        for name, query in {
            "default (full, lz4)": "",
            "normal, lz4": "?synchronous=normal",
            "full, no compression": "?compression=none",
        }.items():
            results[name] = measure(f"{directory}/{len(results)}.db{query}", batch, records)
        results["memory"] = measure("memory://", batch, records)
    report = {
        "command": " ".join(["python", "bench/log.py", *sys.argv[1:]]),
        "workload": f"{records} records with values of {LINE_BYTES} bytes, appended {BATCH} at a time, one process",
        "python": platform.python_version(), "sqlite": sqlite3.sqlite_version, "pyarrow": pa.__version__,
        "results": results,
    }  # fmt: skip
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
