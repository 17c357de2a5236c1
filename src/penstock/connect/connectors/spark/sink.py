"""Any sink of Spark as a connector: records are written as tables, to files once each by the names of folders."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from penstock.connect.api import SinkTask
from penstock.connect.config import ConfigDef, Model
from penstock.connect.connectors.objects.formats import to_arrow
from penstock.connect.connectors.same_config_tasks import AlikeTasksSink
from penstock.connect.connectors.spark.child import SparkChild
from penstock.connect.connectors.spark.spark_settings import SINK_CONFIG, SPARK, session_head
from penstock.connect.data import DataError, SinkRecord
from penstock.engines.spark.connector.frames import Frame
from penstock.log.base import TopicPartition

__all__ = ["SparkSinkConnector", "SparkSinkTask"]

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
    """Any sink of Spark that ``DataFrame.write`` writes to: files each record once, others at least once."""

    java_class: ClassVar[str] = "SparkSinkConnector"
    config: ClassVar[ConfigDef] = SINK_CONFIG
    model: ClassVar[Model] = SPARK
    experimental: ClassVar[bool] = True
    task_class: ClassVar[type[SinkTask]] = SparkSinkTask
