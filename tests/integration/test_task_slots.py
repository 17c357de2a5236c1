"""Stream threads count with the tasks that Spark can run at once, whatever spark.default.parallelism says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE_S = 240
PROGRAM = """
import json, sys, time
from pyspark.sql import SparkSession
from penstock.engines.spark.task_slots import task_slots
from penstock.engines.spark.session import spark_for, spare_slots

master, of, wanted = sys.argv[1:]
settings = {"spark.default.parallelism": "7", "spark.ui.enabled": "false"}
settings["spark.executor.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
if of == "user":
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    context = builder.getOrCreate().sparkContext
else:
    context = spark_for({"spark.master": master, **settings}, "counted", "/nowhere", spare=4).context
deadline = time.monotonic() + 120
first = slots = task_slots(context)
while slots != int(wanted) and time.monotonic() < deadline:
    time.sleep(0.1)  # executors register one after the other
    slots = task_slots(context)
spare, parallelism = spare_slots(context), context.defaultParallelism
print("counted", json.dumps([first >= 1, slots, spare, parallelism]))
context.stop()
"""


@pytest.mark.parametrize(
    ("master", "of", "slots", "spare"),
    [
        ("local[3]", "user", 3, 0),
        ("local[3]", "penstock", 3, 4),
        pytest.param("local-cluster[2,2,1024]", "user", 4, 0, marks=pytest.mark.whole),
    ],
)
def test_the_slots_of_spark_are_counted(tmp_path: Path, master: str, of: str, slots: int, spare: int) -> None:
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment.pop("PYSPARK_SUBMIT_ARGS", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, master, of, str(slots)],
        env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("counted ")]
    assert json.loads(line.removeprefix("counted ")) == [True, slots, spare, 7]
