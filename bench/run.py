"""The benchmark: records per second of each workload, verified, and the same in plain PySpark where that can do it.

python bench/run.py [--n 2000000] [--only w1 w3] [--skip-pyspark] [--output FILE]

Counted is the steady state: records of all batches after the first (which warms up the JVM and the Python workers),
over the wall time from the end of the first batch to the end of the last, commits between them included.
Each run has its own process; every answer is compared with one that Polars computes from the same records.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import machine
import prepare
from workloads import TOPICS

HERE = Path(__file__).parent
TARGETS = {
    "w1": 550_000, "w2a": 330_000, "w2b": 130_000, "w3": 450_000, "w4": 180_000, "ss-join": 150_000, "sessions": 150_000,
    "sliding": 80_000, "tt-join": 150_000, "fk-join": 60_000, "hopping": 60_000,
}  # fmt: skip
IN_PYSPARK = ("w2a", "w2b", "w3")


def measure(engine: str, workload: str, data: Path) -> dict[str, Any]:
    """Runs measure.py and watches its memory; ends the program if it fails."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as work:
        command = [sys.executable, str(HERE / "measure.py"), engine, workload, str(data), work]
        load = round(os.getloadavg()[0], 2)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with machine.TreeWatch(process.pid) as watch:
            out, err = process.communicate()
    lines = [line for line in out.splitlines() if line.startswith("RESULT ")]
    if process.returncode or not lines:
        raise SystemExit(f"{engine} {workload} failed ({process.returncode})\n{out[-2000:]}\n{err[-4000:]}")
    result = json.loads(lines[-1].removeprefix("RESULT "))
    return result | {"peak_memory_mb": round(watch.peak_bytes / 2**20), "load_before": load}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=2_000_000, help="records of each data set")
    parser.add_argument("--only", nargs="+", choices=list(TOPICS), default=list(TOPICS))
    parser.add_argument("--skip-pyspark", action="store_true")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "workloads.json")
    given = parser.parse_args()
    report = machine.facts("bench/run.py") | {"records": given.n, "results": {}}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        data = Path(directory)
        for topic in dict.fromkeys(topic for name in given.only for topic in TOPICS[name]):
            print(f"loading {topic}", flush=True)
            prepare.load(data, topic, given.n)
        for name in given.only:
            row = report["results"][name] = {"target": TARGETS[name], "penstock": measure("penstock", name, data)}
            rate = row["penstock"]["records_per_s"]
            text = f"{name:4} {rate:>9,} records/s (target {TARGETS[name]:,}), {row['penstock']['peak_memory_mb']:,} MB"
            if name in IN_PYSPARK and not given.skip_pyspark:
                row["pyspark"] = measure("pyspark", name, data)
                row["ratio"] = round(rate / row["pyspark"]["records_per_s"], 2)
                text += f"; plain PySpark {row['pyspark']['records_per_s']:,}, so {row['ratio']} times"
            print(text, flush=True)
            given.output.parent.mkdir(parents=True, exist_ok=True)
            given.output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written: {given.output}")


if __name__ == "__main__":
    main()
