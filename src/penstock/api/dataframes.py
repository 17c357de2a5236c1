"""Spark DataFrames as inputs and outputs of a topology, checked when they are added; Spark is not imported here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.api.handle import StreamHandle
from penstock.api.options import Consumed, Produced
from penstock.api.serdes import for_topic
from penstock.api.topic_verbs import to_topic
from penstock.errors import TopologyError
from penstock.topology.building.names import check_name
from penstock.topology.dataframe_source import DataFrameSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.engines.kafka_streams import KafkaStreams

__all__ = ["DataFrameOutput", "dataframe_output", "dataframe_source"]

_SERDES = {
    "string": "string",
    "varchar": "string",
    "char": "string",
    "binary": "bytes",
    "long": "long",
    "integer": "integer",
    "short": "short",
    "double": "double",
    "float": "float",
    "boolean": "boolean",
    "struct": "json",
    "array": "json",
    "map": "json",
}
_TIMES = ("timestamp", "timestamp_ntz", "date", "long")


@dataclass(frozen=True, slots=True)
class DataFrameOutput:
    """A topic that can be read as a streaming DataFrame once the application runs."""

    topic: str
    key_serde: Any
    value_serde: Any

    def of(self, app: KafkaStreams) -> DataFrame:
        """Return a DataFrame of topic, partition, offset, timestamp, key and value; call it after ``app.start()``.

        Keys and values of text and JSON are string columns, whole numbers have their own type, all others are binary.
        """
        keys = self.key_serde if self.key_serde is not None else app.config["default.key.serde"]
        values = self.value_serde if self.value_serde is not None else app.config["default.value.serde"]
        return app.to_dataframe(self.topic, key_serde=keys, value_serde=values)


def dataframe_output(handle: StreamHandle, topic: str, produced: Produced, name: str | None) -> DataFrameOutput:
    """Write the stream to the topic, and note the serdes to read it with."""
    to_topic(handle, topic, produced, name)
    key = produced.key_serde if produced.key_serde is not None else for_topic(handle.key_serde)
    value = produced.value_serde if produced.value_serde is not None else for_topic(handle.value_serde)
    return DataFrameOutput(topic, key, value)


def dataframe_source(source: DataFrameSource) -> DataFrameSource:
    """Check a source as the user described it, and choose serdes by the types of the columns where none are given.

    Raises:
        TopologyError: It is not a streaming DataFrame, a column is missing, or no serde is known for its type.
    """
    name, frame = check_name(source.name), source.frame
    key, value, timestamp = source.key, source.value, source.timestamp
    if not getattr(frame, "isStreaming", False):
        raise TopologyError(
            f"stream_dataframe({name!r}) takes a streaming DataFrame, not {type(frame).__name__}",
            hint="Make one with spark.readStream; write the rows of other DataFrames to a topic.",
        )
    if source.partitions is not None and source.partitions < 1:
        raise TopologyError(f"stream_dataframe({name!r}): partitions={source.partitions}", hint="Give 1 or more.")
    if source.output_mode not in {"append", "update"}:
        raise TopologyError(
            f"stream_dataframe({name!r}): output_mode={source.output_mode!r}",
            hint='Use "append", or "update" for an aggregation: each batch then has the rows that changed.',
        )
    if value is not None and not isinstance(value, str) and isinstance(value, list | tuple):
        value = tuple(value)
        for column in value:
            _type_of(frame, name, column)
    kind = "json" if value is None or isinstance(value, tuple) else _serde(frame, name, value)
    if timestamp is not None and (column_type := _type_of(frame, name, timestamp)) not in _TIMES:
        raise TopologyError(
            f"stream_dataframe({name!r}): the timestamp {timestamp} is of type {column_type}",
            hint="Take a timestamp, a date, or a bigint of milliseconds.",
        )
    guess = Consumed(key_serde="bytes" if key is None else _serde(frame, name, key), value_serde=kind)
    return replace(
        source,
        key_serde=source.key_serde if source.key_serde is not None else guess.key_serde,
        value_serde=source.value_serde if source.value_serde is not None else guess.value_serde,
        value=value,
    )


def _serde(frame: DataFrame, name: str, column: Any) -> str:
    kind = _type_of(frame, name, column)
    if kind not in _SERDES:
        raise TopologyError(
            f"stream_dataframe({name!r}): column {column} is of type {kind}, for which there is no serde",
            hint='Cast it: df.withColumn("c", df["c"].cast("string")).',
        )
    return _SERDES[kind]


def _type_of(frame: DataFrame, name: str, column: Any) -> str:
    try:
        return str(frame.select(column).schema.fields[0].dataType.typeName())
    except Exception as error:
        raise TopologyError(
            f"stream_dataframe({name!r}): the DataFrame has no column {column}: {str(error).splitlines()[0]}",
            hint=f"Its columns are {', '.join(frame.columns)}.",
        ) from error
