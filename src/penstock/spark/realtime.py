"""Real-time mode: the one streaming query of an application under Spark's real-time trigger.

Spark keeps one task a partition running and hands it each record as it comes, through its Kafka connector. The tasks
write their outputs themselves. Spark's batches, a minute long by default, say only how far a restart goes back.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from penstock.errors import CheckpointMismatchError, ConfigError, EnvironmentProblemError
from penstock.log.base import TopicPartition
from penstock.log.url import kafka_servers
from penstock.plan.realtime import realtime_refusal
from penstock.spark.connector import add_connector
from penstock.spark.engine import Engine
from penstock.spark.positions import first_positions
from penstock.spark.progress import BatchProgress
from penstock.spark.realtime_stage import REPORT_DDL, STOP_FILE, run_realtime
from penstock.spark.session import quiet_pandas
from penstock.state.documents import read_document, write_document

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.config import StreamsConfig
    from penstock.plan.plan import PhysicalPlan
    from penstock.spark.offsets import Offsets
    from penstock.topology.topology import Topology

__all__ = ["RealtimeEngine", "require_mode", "require_realtime"]

_log = logging.getLogger(__name__)
_STOP_S = 1.0
_SETTINGS: Mapping[str, str] = {
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",  # of operators; ours keeps to the rules
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",  # a record waits for no other
    "spark.sql.execution.pandas.udf.buffer.size": "16",
}
_NOT_FOR_SPARK = ("key.deserializer", "value.deserializer", "enable.auto.commit", "auto.offset.reset", "group.id",
                  "interceptor.classes", "client.id")  # fmt: skip
_MODE = "mode.json"


def require_realtime(topology: Topology, config: StreamsConfig, plan: PhysicalPlan, *, until_latest: bool) -> None:
    """Raises ConfigError unless real-time mode can run this."""
    why = realtime_refusal(plan, topology, is_kafka=kafka_servers(str(config["bootstrap.servers"])) is not None)
    if why is not None:
        raise ConfigError(
            f"processing.mode is realtime, but {why}",
            hint="Leave processing.mode out: micro-batches run every topology.",
            setting="processing.mode",
        )
    if config.given.get("processing.guarantee") == "exactly_once_v2":
        raise ConfigError(
            "processing.mode=realtime is at least once, and processing.guarantee asks for exactly_once_v2",
            hint="Set processing.guarantee to at_least_once, or leave processing.mode out.",
            setting="processing.guarantee",
        )
    if until_latest:
        raise ConfigError(
            'real-time mode runs until it is stopped, so until="latest" has no meaning',
            hint="Leave processing.mode out for runs that end.",
            setting="processing.mode",
        )


def require_mode(checkpoint: str, mode: str) -> None:
    """Raises CheckpointMismatchError if the checkpoint is of the other mode; notes the mode in a new one."""
    noted = read_document(checkpoint, _MODE)
    before = json.loads(noted)["mode"] if noted else "micro_batch" if read_document(checkpoint, "plan.json") else mode
    if before != mode:
        raise CheckpointMismatchError(
            f"the checkpoint {checkpoint} was made with processing.mode={before}, and now it is {mode}",
            hint="The two number their batches differently: go on in the same mode, give the application another "
            "application.id, or forget what it has done with KafkaStreams.reset().",
            checkpoint=checkpoint,
        )
    if not noted and mode != "micro_batch":
        write_document(checkpoint, _MODE, json.dumps({"mode": mode}))


class RealtimeEngine(Engine):
    """Starts, watches and stops the query; as `Engine`, of which it takes the place."""

    _seen_batch = -1

    def start(self, interval_ms: int) -> None:  # noqa: ARG002 - as Engine's
        """Starts the query."""
        job = self._job
        add_connector(self._session, job.config["penstock.kafka.jars"])
        session = _own_session(self._session)
        add_connector(session, job.config["penstock.kafka.jars"])
        self._require_slots()
        length = int(job.config["penstock.realtime.batch.ms"])
        trigger: dict[str, Any] = {"realTime": f"{length} milliseconds"}  # the stubs do not know it yet
        with quiet_pandas():
            self._query = (
                self._frame(session)
                .writeStream.queryName(job.plan.application_id)
                .format("noop")  # what the stage gives is a report; its outputs it has written itself
                .outputMode("update")
                .option("checkpointLocation", f"{job.checkpoint}/realtime/{len(job.moves)}")
                .trigger(**trigger)
                .start()
            )

    def wait(self, timeout_s: float) -> bool:
        """Waits for its end; True when it has ended. Raises what made it fail."""
        ended = super().wait(timeout_s)
        last = self._query.lastProgress if self._query is not None else None
        if last is not None and int(last["batchId"]) > self._seen_batch:
            self._seen_batch = int(last["batchId"])
            if last["numInputRows"]:
                self._on_batch(BatchProgress(self._seen_batch, int(last["numInputRows"]), 0, 0, -1))
        return ended

    def stop(self) -> None:
        """Has the tasks publish what they have done, as far as they can hear of it, then ends the query."""
        if self.is_running() and "://" not in self._job.checkpoint:
            (Path(self._job.checkpoint) / STOP_FILE).write_text(str(self._job.epoch))
            time.sleep(_STOP_S)
        if self._query is not None:
            try:
                self._query.stop()
            except Exception as error:  # noqa: BLE001 - it is over either way
                _log.debug("the query did not stop cleanly: %s", error)

    def committed(self) -> tuple[int, Offsets] | None:
        """The newest batch that has ended, and where its input ended."""
        last = self._query.lastProgress if self._query is not None else None
        if last is None:
            return None
        ends: dict[TopicPartition, int] = {}
        for source in last["sources"]:
            end = source["endOffset"]
            topics = json.loads(end) if isinstance(end, str) else end or {}
            ends |= {TopicPartition(t, int(p)): int(at) for t, parts in topics.items() for p, at in parts.items()}
        return (int(last["batchId"]), ends) if ends else None

    def _require_slots(self) -> None:
        wanted = sum(self._job.plan.partitions[topic] for topic in self._job.plan.external_topics)
        if wanted > self._job.parallelism:
            raise EnvironmentProblemError(
                f"real-time mode keeps a core busy for each partition: the topics have {wanted}, and Spark has "
                f"{self._job.parallelism}",
                hint=f"Set spark.master to local[{wanted}], or give the cluster more cores.",
            )

    def _frame(self, session: SparkSession) -> DataFrame:
        data = self._job.dump()
        reader = session.readStream.format("kafka")
        for name, value in self._options().items():
            reader = reader.option(name, value)
        columns = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
        rows = reader.load().withColumn("timestamp", F.unix_millis("timestamp")).select(*columns)
        return rows.mapInArrow(_stage(data), REPORT_DDL)

    def _options(self) -> dict[str, str]:
        from penstock.log.kafka.settings import ClientSettings

        job = self._job
        clients = ClientSettings.of(job.log_url, job.log_settings).jvm("consumer")
        client = {f"kafka.{name}": value for name, value in clients.items() if name not in _NOT_FOR_SPARK}
        return {
            "kafka.fetch.max.wait.ms": "5",
            "kafka.isolation.level": "read_committed",
            **client,
            "subscribe": ",".join(job.plan.external_topics),
            "startingOffsets": json.dumps(self._starts()),
            "failOnDataLoss": str(job.reading.loss_fails).lower(),
            "includeHeaders": "true",
        }

    def _starts(self) -> dict[str, dict[str, int]]:
        """Where reading begins if Spark's checkpoint does not know better."""
        job = self._job
        topics = list(job.plan.external_topics)
        with job.open_log() as log:
            ends, first = log.end_offsets(topics), log.beginning_offsets(topics)
            group = log.committed_offsets(job.plan.application_id)
            bounds = {tp: (first[tp], end) for tp, end in ends.items()}
            starts = first_positions(job.reading, bounds, bounds, group, log)
        found: dict[str, dict[str, int]] = {}
        for tp, at in sorted(starts.items()):
            found.setdefault(tp.topic, {})[str(tp.partition)] = at
        return found


def _own_session(session: SparkSession) -> SparkSession:
    """A session beside the application's, as these settings are wrong for all other queries."""
    own = session.newSession()
    for name, value in {**session.conf.getAll, **_SETTINGS}.items():
        if own.conf.isModifiable(name):
            own.conf.set(name, value)
    return own


def _stage(data: bytes) -> Any:
    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_realtime(data, batches)

    return stage
