"""Start time: from the start of Python to the first output of a word count over 1,000 records in an embedded log.

    python bench/start.py 5          # starts; prints each, then the medians

Wall time says what a user waits, and only on an idle machine. CPU seconds are those of the whole process tree until the
first output (the driver, Spark's JVM, its Python processes); they bear other load. To compare two states of the code, let
runs of both take turns, the other one by PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

__all__ = ["main"]

RECORDS = 1_000
PATIENCE_S = 180


def main(starts: int) -> None:
    """Measures several starts, each in a process and a folder of its own."""
    found = []
    for _ in range(starts):
        with tempfile.TemporaryDirectory(prefix="penstock-start-") as folder:
            command = [sys.executable, __file__, "--one", folder]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr[-3000:])
            found.append(json.loads(done.stdout.splitlines()[-1]))
            print(json.dumps(found[-1]), flush=True)
    print(json.dumps({name: statistics.median(each[name] for each in found) for name in found[0]}))


def one(folder: Path) -> None:
    """One start, in this process."""
    import psutil
    import pyarrow as pa

    from penstock import KafkaStreams, Materialized, StreamsBuilder
    from penstock.log.open import open_log

    began = psutil.Process().create_time()
    url = f"sqlite:///{folder / 'log.db'}"
    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(str.split).group_by(lambda _, word: word)
    words.count(Materialized("counts")).to_stream().to("counted")
    settings = {"application.id": "start", "bootstrap.servers": url, "spark.master": "local[2]"}
    serdes = {"default.key.serde": "string", "default.value.serde": "string"}
    with open_log(url) as log:
        log.create_topic("lines", 1)
        rows = {"timestamp": list(range(RECORDS)), "key": [None] * RECORDS, "value": [b"all streams lead on"] * RECORDS}
        schema = pa.schema([("timestamp", pa.int64()), ("key", pa.large_binary()), ("value", pa.large_binary())])
        log.append("lines", 0, pa.RecordBatch.from_pydict(rows, schema=schema))
        prepared = time.time()
        with KafkaStreams(builder.build(), settings | serdes) as app:
            deadline = time.monotonic() + PATIENCE_S
            while not log.end_offset("counted", 0):
                if app.error is not None or time.monotonic() > deadline:
                    raise SystemExit(f"no output: {app.error}")
                time.sleep(0.01)
            ended = time.time()
            tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
            used = [sum(each.cpu_times()[:4]) for each in tree]  # with those children that have ended
    print(
        json.dumps(
            {
                "first_output_s": round(ended - began, 2),
                "of_that_before_the_start_s": round(prepared - began, 2),
                "cpu_s": round(sum(used), 2),
                "of_that_jvm_s": round(max(used[1:]), 2),
                "processes": len(tree),
            }
        )
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(Path(sys.argv[2]))
    else:
        os.environ.setdefault("PENSTOCK_JAVA_ARCHIVE", "off")  # none is made meanwhile
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
