"""Spark over tables of lakehouses, run by an interpreter that has a PySpark which the formats' jars are made for.

It reads one JSON document and writes another one: the rows of each table and version, or what an SQL statement returns.
"""

import datetime as dt
import json
import sys
import time

CATALOG = "default"  # as PyIceberg's, whose name is in its database

__all__ = ["CATALOG", "plain"]


def plain(value):
    """A value of Arrow or of Spark as both have it in JSON: times are those of UTC."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat()
    return value if isinstance(value, str | int | float | None) else str(value)


def session(folder, jars):
    from pyspark.sql import SparkSession

    catalog = f"spark.sql.catalog.{CATALOG}"
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{folder}/catalog.db",
        f"{catalog}.warehouse": f"file://{folder}/files",
        f"{catalog}.jdbc.schema-version": "V1",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main():
    asked = json.load(sys.stdin)
    spark = session(asked["folder"], asked["jars"])
    answers, began = {}, time.monotonic()
    for name, statement in asked["statements"].items():
        print(f"{time.monotonic() - began:.0f} s: {statement}", file=sys.stderr, flush=True)
        answers[name] = [plain(row.asDict(recursive=True)) for row in spark.sql(statement).collect()]
    spark.stop()
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
