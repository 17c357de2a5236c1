"""Any source or sink of Spark as a connector, by a child process that runs PySpark."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

import pyarrow as pa

from penstock.config.prefixes import behind_prefix
from penstock.connect.api import ExactlyOnce, SinkTask, SourceConnector, SourceTask
from penstock.connect.config import ConfigDef, Importance, Kind, Model, OneOf, Range, Setting
from penstock.connect.connectors.arrow_values import schema_of, value_of
from penstock.connect.connectors.objects.formats import to_arrow
from penstock.connect.connectors.same_config_tasks import AlikeTasksSink
from penstock.connect.data import DataError, Schema, SettingError, SinkRecord, SourceRecord, Struct, struct
from penstock.engines.spark.connector.frames import Frame, read_frame, write_frame
from penstock.errors import ConnectError
from penstock.log.base import TopicPartition

__all__ = ["SparkSinkConnector", "SparkSourceConnector"]

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


_STOP_S = 10.0


class SparkChild:
    """A process that runs PySpark for one task, and ends with it.

    Args:
        head: What it does: the first message.
        name: The connector's name, for messages.
    """

    def __init__(self, head: Mapping[str, Any], name: str) -> None:
        self._name = name
        self._frames: queue.Queue[Frame | None] = queue.Queue(2)
        command = [sys.executable, "-m", "penstock.engines.spark.connector"]
        self._process = subprocess.Popen(  # noqa: S603 - in its own session: Ctrl-C is the worker's, which stops its tasks
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        threading.Thread(target=_listen, args=[self._process.stdout, self._frames], daemon=True).start()
        self.send(Frame(dict(head)))

    def send(self, frame: Frame) -> None:
        """Send a message.

        Raises:
            ConnectError: The process has ended.
        """
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        try:
            write_frame(self._process.stdin, frame)  # type: ignore[arg-type] # buffered bytes
        except OSError as error:
            raise self._ended() from error

    def receive(self, timeout_s: float | None) -> Frame | None:
        """Receive a message; None if there is none within the time.

        Raises:
            ConnectError: Spark has failed, or the process has ended.
        """
        try:
            frame = self._frames.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if frame is None:
            self._frames.put(None)
            raise self._ended()
        if frame.head["kind"] == "error":
            raise ConnectError(
                f"Spark of connector {self._name}: {frame.head['text']}",
                hint="Check spark.format, spark.option.* and spark.schema; the task's log has more of it.",
            )
        return frame

    def stop(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _ended(self) -> ConnectError:
        code = self._process.poll()
        return ConnectError(
            f"the Spark process of connector {self._name} has ended" + ("" if code is None else f" (exit code {code})"),
            hint="Its output in the worker's log says why: Java 17 and PySpark are needed (penstock doctor).",
        )


def _listen(out: IO[bytes], frames: queue.Queue[Frame | None]) -> None:
    """Take messages; it knows no `SparkChild`, so that one which is given up is collected, which ends its process."""
    with contextlib.suppress(OSError, ValueError):
        while (frame := read_frame(out)) is not None:  # type: ignore[arg-type] # buffered bytes
            frames.put(frame)
    with contextlib.suppress(queue.Full):
        frames.put(None, timeout=_STOP_S)


_WAIT_S = 0.5


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
    """Any streaming source of Spark, or what ``spark.read`` reads: each row is a record, and is read once.

    Not tried yet: rebalances, the end of Spark's process at each step, and each of Spark's types from a real source.
    """

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


FILES = frozenset({"parquet", "orc", "json", "csv", "text", "avro", "xml"})
NAMES = ("kafka_topic", "kafka_partition", "kafka_offset")


class SparkSinkTask(SinkTask):
    """A task: it keeps records until they are flushed, and commits offsets behind what Spark has written.

    Formats of files get a folder for each partition and first offset, which a repeated write replaces: after a crash
    the same records go into the same folder again, so each is there once. To other formats rows are appended, at least
    once.
    """

    java_class: ClassVar[str] = "SparkSinkTask"
    _child: SparkChild | None = None

    def start(self, settings: Mapping[str, str]) -> None:
        """Start the child process, and wait until Spark is ready."""
        self._parsed = SINK_CONFIG.parse(settings)
        self._names = NAMES if self._parsed["spark.format"].lower() in FILES else ()
        self._kept: dict[TopicPartition, list[SinkRecord]] = {}
        head = {**session_head(settings, self._parsed), "kind": "sink", "partition_by": list(self._names)}
        self._child = SparkChild(head, settings.get("name", "spark"))
        try:
            self._child.receive(None)
        except BaseException:
            self.stop()
            raise

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Keep records; ask for a commit when there are enough. Records without value are passed over."""
        for record in records:
            if record.value is not None:
                tp = TopicPartition(str(record.topic), int(record.partition or 0))
                self._kept.setdefault(tp, []).append(record)
        if sum(map(len, self._kept.values())) >= self._parsed["flush.size"]:
            self.context.request_commit()

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write all that is kept.

        Raises:
            ConnectError: Spark cannot write it; nothing is committed.
        """
        for tp in [tp for tp in self._kept if tp in offsets]:
            records = self._kept[tp]
            for run in _runs(records):
                self._write(tp, run)
            del self._kept[tp]

    def close(self, places: Collection[TopicPartition]) -> None:
        """Forget what is not committed: it comes again where the partitions go."""
        for tp in places:
            self._kept.pop(tp, None)

    def stop(self) -> None:
        """End the child process."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def _write(self, tp: TopicPartition, records: Sequence[SinkRecord]) -> None:
        assert self._child is not None  # noqa: S101 - start comes first
        table = to_arrow(records)
        if self._names:
            taken = [name for name in self._names if name in table.schema.names]
            if taken:
                raise DataError(f"records have a field {taken[0]}, which is the name of a folder of the Spark sink")
            facts: tuple[Any, ...] = (tp.topic, tp.partition, records[0].offset)
            for name, fact in zip(self._names, facts, strict=True):
                table = table.append_column(name, pa.array([fact] * len(records)))
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, table.schema) as writer:
            writer.write_table(table)
        self._child.send(Frame({"kind": "table"}, buffer.getvalue().to_pybytes()))
        self._child.receive(None)


def _runs(records: Sequence[SinkRecord]) -> Iterator[list[SinkRecord]]:
    """Yield neighbours of one schema; the runs begin at the same offsets whenever they are written."""
    run: list[SinkRecord] = []
    for record in records:
        if run and record.value_schema != run[-1].value_schema:
            yield run
            run = []
        run.append(record)
    if run:
        yield run


class SparkSinkConnector(AlikeTasksSink):
    """Any sink of Spark that ``DataFrame.write`` writes to: files each record once, others at least once.

    A record that Spark refuses fails the task, whatever ``errors.tolerance`` says. Not tried yet: rebalances, the end
    of Spark's process at each step, and each of Spark's types.
    """

    java_class: ClassVar[str] = "SparkSinkConnector"
    config: ClassVar[ConfigDef] = SINK_CONFIG
    model: ClassVar[Model] = SPARK
    experimental: ClassVar[bool] = True
    task_class: ClassVar[type[SinkTask]] = SparkSinkTask
