"""Streaming DataFrames as sources of topics, and topics as streaming DataFrames.

A batch of the DataFrame is one transaction of the log, together with its number in the ledger. Spark repeats a batch
that it has not noted as done with the same number and the same rows; if the ledger has it, nothing is written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.base.log_lines import own_logger
from penstock.engines.offsets.offsets import SourceOffset
from penstock.engines.spark.own_session import (
    active_session,
    clone_session,
    commit_trigger,
    configured_source,
    has_ended,
    keep_rdd_to_df,
    load_source,
    move_frame,
)
from penstock.engines.spark.pyspark_warnings import quiet_pyspark
from penstock.engines.spark.spark_log import drop_damaged, newest_planned, noted_inputs, sync_offsets
from penstock.errors import (
    AppFailedError,
    CheckpointMismatchError,
    EnvironmentProblemError,
    PenstockError,
    TopologyError,
)
from penstock.log.base import TopicPartition
from penstock.log.partitioner import partitions_for
from penstock.serde.column import Column
from penstock.state.checkpoint import local_directory, own_part

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.log.base import Lease, TopicLog
    from penstock.topology.dataframe_source import DataFrameSource
    from penstock.topology.topology import Topology

__all__ = ["DataFrameQuery", "dataframe_queries", "spark_location", "topic_frame"]

_log = own_logger(__name__)
_LOOK_S = 2.0
_NESTED = ("struct", "array", "map")
_HADOOPS_NAMES = {"s3": "s3a", "gcs": "gs"}
_JARS = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}
_AZURE = "hadoop-azure, name the place abfss://container@account.dfs.core.windows.net/..."
_OTHER_JARS = {"gs": "Google's gcs-connector", "az": _AZURE, "azure": _AZURE}


class DataFrameQuery:
    """The query that writes one DataFrame into its topic.

    Args:
        source: The DataFrame, its columns and its topic.
        log: The application's log.
        lease: The application's lease; an instance that lost it no longer writes.
        checkpoint: The application's checkpoint location.
        settings: Spark's settings for the copy of the user's session in which the query runs.
    """

    def __init__(
        self,
        source: DataFrameSource,
        log: TopicLog,
        lease: Lease,
        checkpoint: str,
        settings: Mapping[str, str],
    ) -> None:
        if source.frame is None:
            raise TopologyError(
                f"the topology has been pickled, and its DataFrame {source.name!r} was not pickled with it",
                hint=f"Pass it again: KafkaStreams(topology, config, dataframes={{{source.name!r}: df}}).",
            )
        self._source = source
        self._log = log
        self._lease = lease
        self._writer = TopicWriter(source, log, lease)
        self._location = checkpoint
        self._settings = settings
        self._checkpoint = f"{checkpoint}/dataframes/{source.name}"
        self._query: StreamingQuery | None = None
        self._error: PenstockError | None = None

    def require_progress(self, ledger: Mapping[str, int]) -> None:
        """Check that Spark's notes reach the last written batch; else Spark would number other rows as written ones.

        Args:
            ledger: The last batch that each task of the application has written.

        Raises:
            CheckpointMismatchError: They do not.
        """
        written = ledger.get(self._source.task)
        if written is None:
            return
        planned = newest_planned(self._checkpoint)
        if planned is None or planned < written:
            name = self._source.name
            raise CheckpointMismatchError(
                f"the progress of DataFrame {name!r} is lost: its batch {written} is in the log, but "
                f"{self._checkpoint} does not say which rows were read for it",
                hint="Set state.dir or penstock.checkpoint.location to where the application ran, or bring the "
                "checkpoint back from a backup. To start from nothing: penstock app reset app.py:topology "
                "--without-checkpoint.",
                checkpoint=self._location,
                dataframe=name,
            )

    def start(self, interval_ms: int, *, until_latest: bool) -> None:
        """Start the query; with ``until_latest`` return when all present rows of the DataFrame are in the topic."""
        own_part(self._location, "dataframes")
        session = clone_session(self._source.frame.sparkSession, self._settings)
        rows = move_frame(session, self._source.frame.select(*_columns(self._source)))
        writer = (
            rows.writeStream.queryName(f"{self._lease.application}-{self._source.task}")
            .option("checkpointLocation", spark_location(session, self._checkpoint))
            .outputMode(self._source.output_mode)
            .foreachBatch(keep_rdd_to_df(self._write))
        )
        trigger = commit_trigger(interval_ms, until_latest=until_latest)
        drop_damaged(self._checkpoint)
        with active_session(session):
            self._query = writer.trigger(**trigger).start()
        while until_latest and not self._wait(_LOOK_S):
            pass

    def check(self) -> None:
        """Raise the error that ended the query, if any."""
        if self._query is not None and not self._query.isActive:
            self._wait(0.1)

    def stop(self) -> None:
        """Stop the query; a running batch is abandoned, which loses nothing."""
        if self._query is not None:
            try:
                self._query.stop()
            except Exception as error:  # noqa: BLE001 - it is over either way
                _log.debug("the query of DataFrame %s did not stop cleanly: %s", self._source.name, error)

    def _wait(self, timeout_s: float) -> bool:
        assert self._query is not None, "call start() first"  # noqa: S101
        try:
            return has_ended(self._query, timeout_s)
        except Exception as error:
            text = str(error).strip() or type(error).__name__
            failure = self._error or AppFailedError(
                f"the query of DataFrame {self._source.name!r} failed: {text.splitlines()[0][:500]}",
                hint="Start the application again: it continues where it stopped. The full text is in `.details`.",
                details=text,
            )
            failure.facts["dataframe"] = self._source.name
            raise failure from error

    def _write(self, frame: DataFrame, batch: int) -> None:
        try:
            with quiet_pyspark():
                sync_offsets(self._checkpoint)
                self._writer.write(frame.toArrow(), batch, noted_inputs(self._checkpoint, batch))
        except PenstockError as error:  # Spark would pass on only its text
            self._error = error
            raise


@dataclass(frozen=True, slots=True)
class TopicWriter:
    """A writer of Spark's batches of one DataFrame into its topic, each in one transaction.

    Attributes:
        source: The topic and its serdes.
        log: The application's log.
        lease: The application's lease.
    """

    source: DataFrameSource
    log: TopicLog
    lease: Lease

    def write(self, rows: pa.Table, batch: int, inputs: str = "") -> None:
        """Append the rows by time, unless the ledger says that the batch has been written.

        Args:
            rows: The rows of the batch, with the columns ``key``, ``value`` and ``timestamp`` (milliseconds).
            batch: Spark's batch number.
            inputs: A checksum of the input of the batch, for the ledger.

        Raises:
            CheckpointMismatchError: The ledger has a batch of this number with another input.
        """
        if rows.num_rows == 0:
            return
        source, log, application = self.source, self.log, self.lease.application
        times = rows.column("timestamp").to_numpy()
        order = np.argsort(times, kind="stable")  # rows of several files or partitions come one after the other
        rows = rows.take(pa.array(order)).combine_chunks()
        keys = _encoded(rows.column("key"), source.key_serde)
        values = _encoded(rows.column("value"), source.value_serde)
        records = pa.RecordBatch.from_arrays([pa.array(times[order]), keys, values], ["timestamp", "key", "value"])
        targets = partitions_for(keys, log.partitions(source.topic), seed=batch)
        with log.transaction(f"{application}-{source.task}", self.lease.epoch) as transaction:
            for partition in np.unique(targets):
                part = records.take(pa.array(np.flatnonzero(targets == partition)))
                transaction.append(source.topic, int(partition), part)
            transaction.put_ledger(application, source.task, batch, inputs)
        for tp, offset in log.committed_offsets(application).items():
            if tp.topic == source.topic and offset > 0:
                log.delete_records(tp.topic, tp.partition, offset)  # as Kafka Streams purges repartition topics


def _encoded(column: pa.ChunkedArray, serde: Any) -> pa.Array:
    """Encode a column with a serde, unless it is binary already."""
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        return array.cast(pa.large_binary())
    return serde.encode(Column.of_items(array.to_pylist())).cast(pa.large_binary())


def _columns(source: DataFrameSource) -> list[SparkColumn]:
    """Return the columns ``key``, ``value`` and ``timestamp`` (milliseconds) of the source's DataFrame."""
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
    """Return a column, as JSON bytes if it is nested and its serde is JSON: Spark converts it in parallel."""
    spark_column = _column(column)
    nested = frame.select(spark_column).schema.fields[0].dataType.typeName() in _NESTED
    if nested and getattr(serde, "name", "").startswith("json"):
        return F.to_json(spark_column, {"ignoreNullFields": "false"}).cast("binary")
    return spark_column


def dataframe_queries(
    topology: Topology, log: TopicLog, lease: Lease, checkpoint: str, settings: Mapping[str, str]
) -> list[DataFrameQuery]:
    """Make the queries of all DataFrames of a topology; the arguments are those of `DataFrameQuery`.

    Raises:
        TopologyError: A DataFrame is missing, as the topology was pickled.
        CheckpointMismatchError: The checkpoint does not hold the progress of a DataFrame.
    """
    queries = [DataFrameQuery(source, log, lease, checkpoint, settings) for source in topology.dataframes.values()]
    ledger = log.ledger(lease.application) if queries else {}
    for query in queries:
        query.require_progress(ledger)
    return queries


def spark_location(session: SparkSession, location: str) -> str:
    """Convert a checkpoint location to the names of Spark's file systems: ``s3`` is Hadoop's ``s3a``.

    A directory is one of this machine's files, whatever file system Spark takes by default; Hadoop decodes no ``%20``.

    Raises:
        EnvironmentProblemError: This Spark has no file system for it.
    """
    if (directory := local_directory(location)) is not None:
        return f"file://{directory.absolute()}"
    scheme, _, rest = location.partition("://")
    scheme = _HADOOPS_NAMES.get(scheme, scheme)
    spark_url = f"{scheme}://{rest}"
    java: Any = session._jvm  # noqa: SLF001 - there is no public way to Hadoop's file systems
    context: Any = session.sparkContext._jsc  # noqa: SLF001
    try:
        java.org.apache.hadoop.fs.Path(spark_url).getFileSystem(context.hadoopConfiguration())
    except Exception as error:
        version = java.org.apache.hadoop.util.VersionInfo.getVersion()
        jar = _JARS.get(scheme)
        needs = f"spark.jars.packages=org.apache.hadoop:{jar}:{version}" if jar else _OTHER_JARS.get(scheme, "its jar")
        raise EnvironmentProblemError(
            f"Spark cannot write to {location}, where queries of DataFrames keep their checkpoints: "
            f"{str(getattr(error, 'java_exception', error)).splitlines()[0]}",
            hint=f"Set penstock.checkpoint.location to a directory that all machines share, or give Spark {needs} and "
            "the settings of that file system. Without DataFrames nothing of this is needed.",
            checkpoint=location,
        ) from error
    return spark_url


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
