"""A streaming DataFrame into a topic of its application: a query beside the application's own, exactly once.

A batch of the DataFrame is one transaction of the log together with its number in the ledger. Spark repeats a batch
that it has not noted as done with the same number and the same rows; if the ledger has it, nothing is written again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from penstock.errors import AppFailedError, PenstockError, TopologyError
from penstock.serde.column import Column
from penstock.serde.partitioner import partitions_for
from penstock.spark.session import quiet_pandas

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog
    from penstock.log.coordination import Lease
    from penstock.topology.dataframes import DataFrameSource
    from penstock.topology.topology import Topology

__all__ = ["Feed", "feed_partitions", "feeds_of", "write_batch"]

_log = logging.getLogger(__name__)
_LOOK_S = 2.0
_NESTED = ("struct", "array", "map")


class Feed:
    """The query of one DataFrame.

    Args:
        source: The DataFrame, its columns and its topic.
        log: The application's log.
        lease: Of the application; an instance that lost it writes nothing any more.
        checkpoint: The application's checkpoint location.
    """

    def __init__(self, source: DataFrameSource, log: TopicLog, lease: Lease, checkpoint: str) -> None:
        if source.frame is None:
            raise TopologyError(
                f"the topology has been pickled, and its DataFrame {source.name!r} did not travel",
                hint=f"Give it again: KafkaStreams(topology, config, dataframes={{{source.name!r}: df}}).",
            )
        self._source = source
        self._log = log
        self._lease = lease
        self._checkpoint = f"{checkpoint}/dataframes/{source.name}"
        self._query: StreamingQuery | None = None
        self._error: PenstockError | None = None

    def start(self, interval_ms: int, *, until_latest: bool) -> None:
        """Starts it; with ``until_latest`` returns when all that the DataFrame has now is in the topic."""
        rows = self._source.frame.select(*_columns(self._source))
        writer = (
            rows.writeStream.queryName(f"{self._lease.application}-{self._source.task}")
            .option("checkpointLocation", self._checkpoint)
            .outputMode(self._source.output_mode)
            .foreachBatch(self._write)
        )
        trigger: dict[str, Any] = (
            {"availableNow": True} if until_latest else {"processingTime": f"{interval_ms} milliseconds"}
        )
        self._query = writer.trigger(**trigger).start()
        while until_latest and not self._wait(_LOOK_S):
            self._log.renew_lease(self._lease)

    def check(self) -> None:
        """Raises what made it fail."""
        if self._query is not None and not self._query.isActive:
            self._wait(0.1)

    def stop(self) -> None:
        """Ends it; a batch that is running is given up, which loses nothing."""
        if self._query is not None:
            try:
                self._query.stop()
            except Exception as error:  # noqa: BLE001 - it is over either way
                _log.debug("the query of DataFrame %s did not stop cleanly: %s", self._source.name, error)

    def _wait(self, timeout_s: float) -> bool:
        assert self._query is not None, "start() comes first"  # noqa: S101
        try:
            return bool(self._query.awaitTermination(timeout_s))  # type: ignore[arg-type] # fractions are fine
        except Exception as error:
            text = str(error).strip() or type(error).__name__
            raise self._error or AppFailedError(
                f"the query of DataFrame {self._source.name!r} failed: {text.splitlines()[0][:500]}",
                hint="Start the application again: it continues where it stopped. The full text is in `.details`.",
                details=text,
            ) from error

    def _write(self, frame: DataFrame, batch: int) -> None:
        try:
            with quiet_pandas():
                write_batch(self._source, frame.toArrow(), batch, self._log, self._lease)
        except PenstockError as error:  # Spark would pass on only its text
            self._error = error
            raise


def write_batch(source: DataFrameSource, rows: pa.Table, batch: int, log: TopicLog, lease: Lease) -> None:
    """Appends the rows (``key``, ``value``, ``timestamp``) by time, unless the ledger says that they are there.

    Args:
        source: The topic and its serdes.
        rows: What Spark's batch has.
        batch: Its number.
        log: Where to.
        lease: Of the application.
    """
    if rows.num_rows == 0:
        return
    times = rows.column("timestamp").to_numpy()
    order = np.argsort(times, kind="stable")  # rows of several files or partitions come one after the other
    rows = rows.take(pa.array(order)).combine_chunks()
    keys = _encoded(rows.column("key"), source.key_serde)
    values = _encoded(rows.column("value"), source.value_serde)
    records = pa.RecordBatch.from_arrays([pa.array(times[order]), keys, values], ["timestamp", "key", "value"])
    targets = partitions_for(keys, log.partitions(source.topic), seed=batch)
    application = lease.application
    with log.transaction(f"{application}-{source.task}", lease.epoch) as transaction:
        for partition in np.unique(targets):
            part = records.take(pa.array(np.flatnonzero(targets == partition)))
            transaction.append(source.topic, int(partition), part)
        transaction.put_ledger(application, source.task, batch)
    for place, offset in log.committed_offsets(application).items():
        if place.topic == source.topic and offset > 0:
            log.delete_records(place.topic, place.partition, offset)  # as Kafka Streams purges repartition topics


def _encoded(column: pa.ChunkedArray, serde: Any) -> pa.Array:
    """Bytes stay what they are; all else goes through the serde."""
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        return array.cast(pa.large_binary())
    return serde.encode(Column.of_items(array.to_pylist())).cast(pa.large_binary())


def _columns(source: DataFrameSource) -> list[SparkColumn]:
    """``key``, ``value`` and ``timestamp`` in milliseconds, of the source's DataFrame."""
    frame = source.frame
    key = F.lit(None).cast("binary") if source.key is None else _plain(frame, source.key, source.key_serde)
    names = frame.columns if source.value is None else source.value
    value = F.struct(*(_column(n) for n in names)) if isinstance(names, list | tuple) else names
    now = F.unix_millis(F.current_timestamp())
    if source.timestamp is None:
        time = now
    else:
        time = _column(source.timestamp)
        if frame.select(time).schema.fields[0].dataType.typeName() != "long":
            time = F.unix_millis(time.cast("timestamp"))
        time = F.coalesce(time, now)
    return [key.alias("key"), _plain(frame, value, source.value_serde).alias("value"), time.alias("timestamp")]


def _column(column: Any) -> SparkColumn:
    return F.col(column) if isinstance(column, str) else column


def _plain(frame: DataFrame, column: Any, serde: Any) -> SparkColumn:
    """The column, as JSON bytes if it is nested and its serde JSON; Spark does that by itself, and in parallel."""
    found = _column(column)
    nested = frame.select(found).schema.fields[0].dataType.typeName() in _NESTED
    if nested and getattr(serde, "name", "").startswith("json"):
        return F.to_json(found, {"ignoreNullFields": "false"}).cast("binary")
    return found


def feeds_of(topology: Topology, log: TopicLog, lease: Lease, checkpoint: str) -> list[Feed]:
    """The queries of all DataFrames of a topology.

    Raises:
        TopologyError: A DataFrame is not there any more.
    """
    return [Feed(source, log, lease, checkpoint) for source in topology.dataframes.values()]


def feed_partitions(topology: Topology, config: StreamsConfig) -> dict[str, int]:
    """Partition counts that the topics of DataFrames get when they are created."""
    usual = int(config["num.partitions"])
    return {source.topic: source.partitions or usual for source in topology.dataframes.values()}
