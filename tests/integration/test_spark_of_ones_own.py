"""A Spark that an application has started: its context alone, shared with later applications, until the last one ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PATIENCE_S = 400
PROGRAM = """
import sys, threading, time
from pathlib import Path

import pyarrow as pa
from penstock import KafkaStreams, StreamsBuilder
from penstock.log.open import open_log

root = Path(sys.argv[1])
url = f"sqlite:///{root / 'log.db'}"


def application(name):
    builder = StreamsBuilder()
    builder.stream("lines").map_values(str.upper).to(name)
    serdes = {"default.key.serde": "string", "default.value.serde": "string"}
    settings = {"application.id": name, "bootstrap.servers": url, "state.dir": str(root / "state"), "spark.master": "local[2]"}
    return KafkaStreams(builder.build(), {**settings, **serdes, "num.stream.threads": 1})


def write(text):
    columns = {"timestamp": pa.array([1]), "key": pa.array([None], pa.large_binary())}
    log.append("lines", 0, pa.RecordBatch.from_pydict({**columns, "value": pa.array([text], pa.large_binary())}))


def wait_for(name, end, app):
    deadline = time.monotonic() + 300
    while log.end_offset(name, 0) < end:
        assert app.error is None, app.error
        assert time.monotonic() < deadline, (name, app.state)
        time.sleep(0.02)


with open_log(url) as log:
    for topic in ("lines", "first", "second", "third"):
        log.create_topic(topic, 1)
    write(b"a")
    first = application("first")
    first.start()
    wait_for("first", 1, first)

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    print("session", SparkSession._instantiatedSession is not None)
    context = SparkContext._active_spark_context
    second = application("second")
    starter = threading.Thread(target=second.start)  # where no session is active
    starter.start()
    starter.join()
    wait_for("second", 1, second)
    print("shared", SparkContext._active_spark_context is context)
    first.close()
    write(b"b")
    wait_for("second", 2, second)
    print("first", first.state.name, log.end_offset("first", 0))
    second.close()
    print("stopped", SparkContext._active_spark_context is None)
    third = application("third")
    third.start()
    wait_for("third", 2, third)
    users = SparkSession.builder.getOrCreate()
    print("users", users.range(3).count(), users.sparkContext is SparkContext._active_spark_context)
    third.close()
    print("end", third.state.name, SparkContext._active_spark_context is None, SparkSession._instantiatedSession is None)
"""

AT_ONCE = """
import threading

from penstock.engines.spark.session import spark_for

started = []
together = threading.Barrier(2)


def start(name):
    together.wait()
    started.append(spark_for({"spark.master": "local[1]"}, name, "/nowhere"))


threads = [threading.Thread(target=start, args=(name,)) for name in ("first", "second")]
for each in threads:
    each.start()
for each in threads:
    each.join()
print("started", len(started), "contexts", len({id(each.context) for each in started}), "new", sum(each.is_new for each in started))
one, last = started
one.release()
print("running", last.is_running())
ending = threading.Thread(target=last.release)
ending.start()
while last._is_used:
    pass
following = spark_for({"spark.master": "local[1]"}, "third", "/nowhere")  # while the context of the others stops
ending.join()
print("following", following.is_running(), following.context.parallelize([1, 2]).sum())
following.release()
"""


def test_the_context_is_shared_and_ends_with_the_last_application(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "session False",
        "shared True",
        "first NOT_RUNNING 1",
        "stopped True",
        "users 3 True",
        "end NOT_RUNNING True True",
    ]


def test_one_that_starts_while_another_starts_or_ends_has_a_context_that_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE], capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["started 2 contexts 1 new 1", "running True", "following True 3"]
