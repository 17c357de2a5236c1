"""Spark's Structured Streaming from Python: ShuffleBench. Spark has this environment for itself; settings.py says what it holds.

The rules are matched by column (mapInArrow), their states kept by applyInPandasWithState. The query reads all that is there in
batches of its own and ends. Spark's Kafka sink writes at least once. There is no changelog: the states that are left are read from
the checkpoint and written to a topic of the changelog's name, behind the last mark.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from settings import ENV, OUT, mark

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
EVERY = 10
STATE = ">qqqq"  # of struct, whose compiled formats cannot be pickled
MATCHED = "rule string, value binary, at long"
BEFORE = ("latestOffset", "getOffset", "getEndOffset", "walCommit", "getBatch", "queryPlanning")
STATES = "count long, sum long, first long, last long"


def matcher(edges: list[int], rules: list[list[str]]) -> Any:
    """Return the function of mapInArrow: a row for each rule that a record matches."""
    lows = np.array([0, *edges], dtype=np.uint32)
    some = np.array([bool(names) for names in rules])

    def matched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values, at = batch.column("value"), batch.column("at")
            numbers = np.array([int.from_bytes(each.as_buffer()[8:12], "big") for each in values], dtype=np.uint32)
            found = np.searchsorted(lows, numbers, side="right") - 1
            rows = [(row, rule) for row in np.flatnonzero(some[found]) for rule in rules[found[row]]]
            places = pa.array([row for row, _ in rows], pa.int64())
            columns = [pa.array([rule for _, rule in rows], pa.string()), values.take(places), at.take(places)]
            yield pa.RecordBatch.from_arrays(columns, ["rule", "value", "at"])

    return matched


def counted(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Count the records of a rule, and emit its state with the tenth."""
    count, total, first, last = state.get if state.exists else (0, 0, 0, 0)
    made = []
    for frame in frames:
        for value, at in zip(frame["value"], frame["at"], strict=True):
            first = first if count else at
            count, last = count + 1, at
            total = (total + int.from_bytes(value[:8], "big", signed=True) + 2**63) % 2**64 - 2**63
            if count == EVERY:
                made.append(struct.pack(STATE, count, total, first, last))
                count, total = 0, 0
    if count:
        state.update((count, total, int(first), int(last)))
    elif state.exists:
        state.remove()
    yield pd.DataFrame({"key": [key[0]] * len(made), "value": made})


def begin_of(progress: Any) -> int:
    """Return when a batch began to process, in ms: all that Spark does before it (offsets, the plan) is not counted."""
    began = datetime.fromisoformat(progress["timestamp"]).timestamp() * 1_000
    return int(began) + sum(ms for name, ms in progress["durationMs"].items() if name in BEFORE)


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    edges, rules = json.loads(ENV["RULES"])
    broker = {"kafka.bootstrap.servers": ENV["BOOTSTRAP"]}
    checkpoint = str(Path(ENV["STATE_DIR"]) / "checkpoint")
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", CONNECTOR)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    mark("RUNNING")
    source = spark.readStream.format("kafka").options(
        **broker, subscribe=ENV["TOPIC_RECORDS"], startingOffsets="earliest"
    )
    records = source.load().select("value", F.unix_millis("timestamp").alias("at"))
    results = (
        records.mapInArrow(matcher(edges, rules), MATCHED)
        .groupBy("rule")
        .applyInPandasWithState(counted, "key string, value binary", STATES, "append", GroupStateTimeout.NoTimeout)
    )
    query = (
        results.writeStream.format("kafka")
        .options(**broker, topic=OUT, checkpointLocation=checkpoint)
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    records_read = 0
    for progress in (json.loads(each.json) for each in query.recentProgress):
        if progress["numInputRows"]:
            began = begin_of(progress)
            if not records_read:
                print("@@FIRST", began, flush=True)
                print("@@AT", began, 0, flush=True)
            records_read += progress["numInputRows"]
            ended = began + progress["durationMs"]["addBatch"]
            print("@@AT", ended, records_read, flush=True)
            print("@@PROCESSED", ended, flush=True)
    left = spark.read.format("statestore").load(checkpoint)
    packed = F.udf(lambda state: struct.pack(STATE, *state), "binary")
    (
        left.select(F.col("key.rule").alias("key"), packed("value.groupState").alias("value"))
        .write.format("kafka")
        .options(**broker, topic=f"{ENV['APP_ID']}-states-changelog")
        .save()
    )
    spark.stop()


if __name__ == "__main__":
    main()
