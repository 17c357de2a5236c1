"""The same counts and sums in plain PySpark Structured Streaming: no Kafka Streams semantics, no exactly-once output.

It reads the same topics through the same data source and runs Spark's own stateful aggregation in update mode.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from workloads import LINE, OS_NAMES

JAVA_LINE = LINE.replace("(?<ip>", "(").replace("(?<path>", "(").replace("(?<status>", "(").replace("(?<agent>", "(")


def w2(records: DataFrame, *, by_os: bool) -> DataFrame:
    """One-minute counts by operating system or by address."""
    line = F.col("value").cast("string")
    agent = F.regexp_extract(line, JAVA_LINE, 4)
    os = F.lit("other")
    for name in reversed(OS_NAMES):
        os = F.when(F.contains(agent, F.lit(name)), F.lit(name)).otherwise(os)
    key = os if by_os else F.regexp_extract(line, JAVA_LINE, 1)
    return (
        records.withColumn("time", F.timestamp_millis("timestamp"))
        .withWatermark("time", "15 minutes")
        .groupBy(F.window("time", "1 minute"), key.alias("key"))
        .count()
        .select(
            F.concat_ws("@", "key", F.unix_millis("window.start")).alias("key"),
            F.col("count").cast("string").alias("value"),
        )
    )


def w3(records: DataFrame) -> DataFrame:
    """The running sum per key."""
    return (
        records.groupBy(F.col("key").cast("string").alias("key"))
        .agg(F.sum(F.col("value").cast("string").cast("long")).alias("value"))
        .select("key", F.col("value").cast("string").alias("value"))
    )
