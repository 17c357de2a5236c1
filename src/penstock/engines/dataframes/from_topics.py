"""Topics as streaming DataFrames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.engines.offsets.offsets import SourceOffset
from penstock.engines.spark.own_session import clone_session, configured_source, load_source, move_frame
from penstock.engines.spark.quiet import quiet_pyspark
from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from penstock.log.base import TopicLog

__all__ = ["TopicSource", "topic_frame"]

_DDL = "topic string, partition int, offset bigint, timestamp bigint, key binary, value binary"
_WHOLE = {"long": (8, "bigint"), "integer": (4, "int"), "short": (2, "smallint")}
_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


class _Range(InputPartition):
    def __init__(self, tp: TopicPartition, start: int, end: int) -> None:
        super().__init__((tp, start, end))


class TopicSource(DataSource):
    """A data source with the records of a topic.

    Attributes:
        log: The log of the topic; an attribute of the class, as it may hold passwords and options would show in plans.
        topic: The name of the topic.
    """

    log: TopicLog
    topic: str

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        return _DDL

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's interface
        return _TopicReader(self.log, self.topic)


class _TopicReader(DataSourceStreamReader):
    def __init__(self, log: TopicLog, topic: str) -> None:
        self._log = log
        self._topic = topic

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return SourceOffset(self._log.beginning_offsets([self._topic])).to_json()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override] # noqa: N802 - the form without limits
        return SourceOffset(self._log.end_offsets([self._topic])).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        before, after = SourceOffset.of(start).ends, SourceOffset.of(end).ends
        return [_Range(tp, before.get(tp, 0), stop) for tp, stop in after.items() if stop > before.get(tp, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        tp, start, end = partition.value
        with self._log as log:  # this worker's own
            for records in log.iterate(tp.topic, tp.partition, start, end):
                rows = records.num_rows
                columns = [
                    pa.array([tp.topic] * rows, pa.string()),
                    pa.array([tp.partition] * rows, pa.int32()),
                    records.column("offset"),
                    records.column("timestamp"),
                    records.column("key").cast(pa.binary()),
                    records.column("value").cast(pa.binary()),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)

    def stop(self) -> None:
        self._log.close()


def topic_frame(
    session: SparkSession, log: TopicLog, topic: str, key_serde: Any = None, value_serde: Any = None
) -> DataFrame:
    """Return the records of a topic as a streaming DataFrame; raise UnknownTopicError.

    Keys and values are binary, or converted if their serde is one of text, JSON or a whole number.
    """
    log.partitions(topic)
    with quiet_pyspark():
        source = configured_source(TopicSource, TopicSource.name(), log=log, topic=topic)
        frame = move_frame(session, load_source(clone_session(session, {}), source))
    columns = {"key": _typed("key", key_serde), "value": _typed("value", value_serde)}
    return frame.withColumns({name: column for name, column in columns.items() if column is not None})


def _typed(name: str, serde: Any) -> SparkColumn | None:
    kind = str(getattr(serde, "name", serde))
    if kind == "string" or kind.startswith("json"):
        return F.col(name).cast("string")
    if kind in _WHOLE:  # big-endian two's complement; conv reads 64 bits without a sign
        bits = F.conv(F.hex(name), 16, -10).cast("bigint")
        missing = 64 - 8 * _WHOLE[kind][0]
        return F.shiftright(F.shiftleft(bits, missing), missing).cast(_WHOLE[kind][1])
    return None
