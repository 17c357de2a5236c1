"""Spark DataFrames in and out of a topology, checked where they are named; Spark itself is not imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.api.options import Consumed, Produced
from penstock.api.serdes import for_topic
from penstock.errors import TopologyError
from penstock.topology.dataframes import DataFrameSource, OutputMode
from penstock.topology.names import check_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.api.stream import KStream
    from penstock.app import KafkaStreams

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
    """A stream that can be had as a streaming DataFrame once the application runs."""

    topic: str
    key_serde: Any
    value_serde: Any

    def of(self, app: KafkaStreams) -> DataFrame:
        """The DataFrame: topic, partition, offset, timestamp, key, value; call it after ``app.start()``.

        Text and JSON are string columns, whole numbers columns of their type; all else stays binary.
        """
        keys = self.key_serde if self.key_serde is not None else app.config["default.key.serde"]
        values = self.value_serde if self.value_serde is not None else app.config["default.value.serde"]
        return app.to_dataframe(self.topic, key_serde=keys, value_serde=values)


def dataframe_output(stream: KStream[Any, Any], topic: str, produced: Produced, name: str | None) -> DataFrameOutput:
    """Writes the stream to the topic, and remembers how to read it."""
    stream.to(topic, produced, name=name)
    handle = stream._handle  # noqa: SLF001 - one package
    key = produced.key_serde if produced.key_serde is not None else for_topic(handle.key_serde)
    value = produced.value_serde if produced.value_serde is not None else for_topic(handle.value_serde)
    return DataFrameOutput(topic, key, value)


def dataframe_source(
    frame: DataFrame,
    name: str,
    key: Any,
    value: Any,
    timestamp: Any,
    consumed: Consumed,
    partitions: int | None,
    output_mode: OutputMode,
) -> DataFrameSource:
    """Checks the columns and finds their serdes.

    Raises:
        TopologyError: It is no streaming DataFrame, a column is not there, or its type has no serde.
    """
    check_name(name)
    if not getattr(frame, "isStreaming", False):
        raise TopologyError(
            f"stream_dataframe({name!r}) takes a streaming DataFrame, not {type(frame).__name__}",
            hint="Make one with spark.readStream; records that are there once and for all go through a topic.",
        )
    if partitions is not None and partitions < 1:
        raise TopologyError(f"stream_dataframe({name!r}): partitions={partitions}", hint="Give 1 or more.")
    if output_mode not in {"append", "update"}:
        raise TopologyError(
            f"stream_dataframe({name!r}): output_mode={output_mode!r}",
            hint='Use "append", or "update" for an aggregation: each batch then gives the rows that changed.',
        )
    if value is not None and not isinstance(value, str) and isinstance(value, list | tuple):
        value = tuple(value)
        for column in value:
            _type_of(frame, name, column)
    kind = "json" if value is None or isinstance(value, tuple) else _serde(frame, name, value)
    if timestamp is not None and (found := _type_of(frame, name, timestamp)) not in _TIMES:
        raise TopologyError(
            f"stream_dataframe({name!r}): the timestamp {timestamp} is of type {found}",
            hint="Take a timestamp, a date, or a bigint of milliseconds.",
        )
    guess = Consumed(key_serde="bytes" if key is None else _serde(frame, name, key), value_serde=kind)
    return DataFrameSource(
        name,
        f"{name}-dataframe",
        consumed.key_serde if consumed.key_serde is not None else guess.key_serde,
        consumed.value_serde if consumed.value_serde is not None else guess.value_serde,
        partitions,
        output_mode,
        key,
        value,
        timestamp,
        frame,
    )


def _serde(frame: DataFrame, name: str, column: Any) -> str:
    kind = _type_of(frame, name, column)
    if kind not in _SERDES:
        raise TopologyError(
            f"stream_dataframe({name!r}): column {column} is of type {kind}, which has no bytes in a topic",
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
