"""The settings of Spark connectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.config.prefixes import behind_prefix
from penstock.connect.config import ConfigDef, Importance, Kind, Model, OneOf, Range, Setting

__all__ = ["SINK_CONFIG", "SOURCE_CONFIG", "SPARK", "session_head"]

OPTION, CONF = "spark.option.", "spark.conf."
SPARK = Model("Spark", own=(OPTION, CONF))
_COMMON = (
    Setting(
        name="spark.format",
        kind=Kind.STRING,
        importance=Importance.HIGH,
        doc="The name of Spark's source or sink: parquet, csv, json, rate, kafka, jdbc, delta and so on. Options of it "
        "begin with spark.option., such as spark.option.path.",
    ),
    Setting(
        name="spark.master",
        kind=Kind.STRING,
        default="local[1]",
        doc="Where Spark runs; its settings begin with spark.conf., such as spark.conf.spark.jars.packages.",
    ),
)
SOURCE_CONFIG = ConfigDef(
    [
        *_COMMON,
        Setting(name="topic", kind=Kind.STRING, importance=Importance.HIGH, doc="The topic of the records."),
        Setting(
            name="spark.mode",
            kind=Kind.STRING,
            default="streaming",
            rule=OneOf(("streaming", "batch")),
            doc="streaming: what comes is read again and again. batch: what is there is read once, as by spark.read.",
        ),
        Setting(
            name="spark.schema",
            kind=Kind.STRING,
            default="",
            importance=Importance.HIGH,
            doc="The columns as DDL, such as id INT, name STRING; streaming sources of files need it.",
        ),
        Setting(
            name="spark.checkpoint",
            kind=Kind.STRING,
            default="",
            importance=Importance.HIGH,
            doc="The folder of the query's checkpoint, which each worker must be able to read; by default one below "
            "spark-checkpoints in the worker's folder, by the connector's name.",
        ),
        Setting(
            name="spark.interval.ms", kind=Kind.LONG, default=1000, rule=Range(0), doc="The time from batch to batch."
        ),
        Setting(
            name="spark.key.column",
            kind=Kind.STRING,
            default="",
            doc="The column of the records' keys; by default none.",
        ),
        Setting(
            name="spark.value.column",
            kind=Kind.STRING,
            default="",
            doc="The column that is the whole value; by default a value has all columns as fields.",
        ),
    ]
)
SINK_CONFIG = ConfigDef(
    [
        *_COMMON,
        Setting(
            name="flush.size",
            kind=Kind.INT,
            default=10_000,
            rule=Range(1),
            importance=Importance.HIGH,
            doc="The number of records after which they are written, before offset.flush.interval.ms is over.",
        ),
    ]
)


def session_head(settings: Mapping[str, str], parsed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the first message to the child process that sources and sinks share."""
    return {
        "name": settings.get("name", "spark"),
        "master": parsed["spark.master"],
        "conf": behind_prefix(settings, CONF),
        "format": parsed["spark.format"],
        "options": behind_prefix(settings, OPTION),
    }
