"""Spark's real-time mode from Python: task a of bench/rtm, the only one that its connector takes. Spark has this environment for itself."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from settings import ENV, OUT, mark

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


def main() -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    broker = {"kafka.bootstrap.servers": ENV["BOOTSTRAP"]}
    spark = (
        SparkSession.builder.master("local[6]")  # a core for each partition of the input, for as long as a batch lasts
        .config("spark.jars.packages", CONNECTOR)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "5")
        .getOrCreate()
    )
    records = spark.readStream.format("kafka").options(**broker, subscribe=ENV["TOPIC_IN"], startingOffsets="earliest")
    encoded = records.load().select("key", F.base64("value").alias("value"))
    query = (
        encoded.writeStream.format("kafka")
        .options(**broker, topic=OUT, checkpointLocation=str(Path(ENV["STATE_DIR"]) / "checkpoint"))
        .outputMode("update")
        .trigger(realTime="5 minutes")
        .start()
    )
    while not query.status["isTriggerActive"]:
        time.sleep(0.1)
    mark("RUNNING")
    while query.isActive and not stopped.wait(0.2):
        pass
    if error := query.exception():
        raise error
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
