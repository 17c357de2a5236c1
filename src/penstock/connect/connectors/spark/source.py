"""Any source of Spark as a connector: each batch of a streaming query is one transaction of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.types as t

from penstock.connect.api import ExactlyOnce, SourceConnector, SourceTask
from penstock.connect.config import ConfigDef, Model
from penstock.connect.connectors.spark.child import SparkChild
from penstock.connect.connectors.spark.spark_settings import SOURCE_CONFIG, SPARK, session_head
from penstock.connect.data import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    Moment,
    Schema,
    SettingError,
    SourceRecord,
    Struct,
    Type,
    array,
    decimal_schema,
    map_of,
    struct,
)
from penstock.engines.spark.connector.frames import Frame
from penstock.errors import ConnectError

__all__ = ["SparkSourceConnector", "SparkSourceTask", "schema_of", "value_of"]

_WAIT_S = 0.5
_PLAIN = (
    (t.is_boolean, BOOLEAN), (t.is_int8, INT8), (t.is_int16, INT16), (t.is_int32, INT32), (t.is_int64, INT64),
    (t.is_float32, FLOAT32), (t.is_float64, FLOAT64), (t.is_string, STRING), (t.is_large_string, STRING),
    (t.is_binary, BYTES), (t.is_large_binary, BYTES), (t.is_date, DATE), (t.is_timestamp, TIMESTAMP),
)  # fmt: skip


class SparkSourceTask(SourceTask):
    """The task: it takes batches from the child process, and lets Spark go on when one is committed.

    Spark repeats a batch that it has not noted as done with the same number; one that is committed already is passed
    over by its number, which is the source offset. A checkpoint has an id, the source partition: with a new checkpoint
    all comes again.
    """

    java_class: ClassVar[str] = "SparkSourceTask"
    _child: SparkChild | None = None

    def start(self, settings: Mapping[str, str]) -> None:
        """Start the child process."""
        self._parsed = parsed = SOURCE_CONFIG.parse(settings)
        name = settings.get("name", "spark")
        checkpoint = parsed["spark.checkpoint"] or str(Path("spark-checkpoints", name).absolute())
        self._is_open = False  # a batch is delivered, and not answered yet
        self._child = SparkChild(
            {
                **session_head(settings, parsed), "kind": "source", "mode": parsed["spark.mode"],
                "schema": parsed["spark.schema"], "checkpoint": checkpoint, "interval_ms": parsed["spark.interval.ms"],
            },
            name,
        )  # fmt: skip

    def poll(self) -> Sequence[SourceRecord] | None:
        """Return the records of the next batch, all of them at once."""
        assert self._child is not None  # noqa: S101 - start comes first
        if self._is_open:  # nothing of it was written: every record was dropped
            self.commit()
        frame = self._child.receive(_WAIT_S)
        if frame is None or frame.head["kind"] != "batch":
            return None
        self._is_open = True
        partition, number = {"query": frame.head["query"]}, frame.head["batch"]
        stored = self.context.offset_reader.offset(partition)
        table = pa.ipc.open_stream(frame.data).read_all()
        if not table.num_rows or (stored is not None and int(stored["batch"]) >= number):
            self.commit()
            return None
        return self._records(table, partition, {"batch": number})

    def commit(self) -> None:
        """Let Spark note the batch as done."""
        if self._is_open and self._child is not None:
            self._is_open = False
            self._child.send(Frame({"kind": "committed"}))

    def stop(self) -> None:
        """End the child process."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def _records(
        self, table: pa.Table, partition: Mapping[str, Any], offset: Mapping[str, Any]
    ) -> Sequence[SourceRecord]:
        key, value = self._column(table, "spark.key.column"), self._column(table, "spark.value.column")
        fields = {column.name: schema_of(column.type) for column in table.schema if column.name != key}
        whole = struct(fields)
        key_schema = schema_of(table.schema.field(key).type) if key else None
        value_schema = schema_of(table.schema.field(value).type) if value else whole

        def value_from(row: Mapping[str, Any]) -> Any:
            if value:
                return value_of(row[value], value_schema)
            return Struct(whole, {name: value_of(row[name], schema) for name, schema in fields.items()})

        def key_from(row: Mapping[str, Any], schema: Schema) -> Any:
            return value_of(row[key], schema)

        return [
            SourceRecord(
                topic=self._parsed["topic"],
                key=None if key_schema is None else key_from(row, key_schema),
                key_schema=key_schema,
                value=value_from(row),
                value_schema=value_schema,
                source_partition=partition,
                source_offset=offset,
            )
            for row in table.to_pylist()
        ]

    def _column(self, table: pa.Table, setting: str) -> str:
        name = str(self._parsed[setting])
        if name and name not in table.schema.names:
            raise SettingError.invalid(setting, name, f"the columns are {', '.join(table.schema.names)}")
        return name


class SparkSourceConnector(SourceConnector):
    """Any streaming source of Spark, or what ``spark.read`` reads: each row is a record, and is read once."""

    java_class: ClassVar[str] = "SparkSourceConnector"
    config: ClassVar[ConfigDef] = SOURCE_CONFIG
    model: ClassVar[Model] = SPARK
    experimental: ClassVar[bool] = True
    task_class: ClassVar[type[SourceTask]] = SparkSourceTask

    def start(self, settings: Mapping[str, str]) -> None:
        """Check the settings."""
        self._settings = dict(settings)
        self.config.parse(settings)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:  # noqa: ARG002 - one query
        """Return the config of the only task: Spark divides the work itself."""
        return [self._settings]

    def exactly_once_support(self, settings: Mapping[str, str]) -> ExactlyOnce | None:  # noqa: ARG002
        """Supported: a batch and its number are one transaction."""
        return ExactlyOnce.SUPPORTED


def schema_of(kind: pa.DataType) -> Schema:
    """Return the schema of a column's values, all of which may be null.

    Raises:
        ConnectError: Connect has no such type.

    Example:
        >>> str(schema_of(pa.list_(pa.int32())).type), schema_of(pa.int64()).optional
        ('ARRAY', True)
    """
    for fits, schema in _PLAIN:
        if fits(kind):
            return schema.as_optional()
    if t.is_decimal(kind):
        return decimal_schema(kind.scale).as_optional()
    if t.is_struct(kind):
        return struct({field.name: schema_of(field.type) for field in kind}).as_optional()
    if t.is_list(kind) or t.is_large_list(kind):
        return array(schema_of(kind.value_type)).as_optional()
    if t.is_map(kind):
        return map_of(schema_of(kind.key_type), schema_of(kind.item_type)).as_optional()
    raise ConnectError(
        f"Connect has no type for Spark's {kind}", hint="Cast the column: an option of the format, or spark.schema."
    )


def value_of(value: Any, schema: Schema) -> Any:
    """Return a value of a row as that of a record."""
    if value is None:
        return None
    if schema.type is Type.STRUCT:
        return Struct(schema, {part.name: value_of(value[part.name], part.schema) for part in schema.fields})
    if schema.type is Type.ARRAY and schema.values is not None:
        return [value_of(each, schema.values) for each in value]
    if schema.type is Type.MAP and schema.keys is not None and schema.values is not None:
        pairs = value.items() if isinstance(value, dict) else value
        return {value_of(key, schema.keys): value_of(each, schema.values) for key, each in pairs}
    return Moment.of(value) if isinstance(value, date | datetime | time) else value
