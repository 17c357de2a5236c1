"""The copying of topics as a connector: Kafka's ``MirrorSourceConnector``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from penstock.connect.api import ExactlyOnce
from penstock.connect.config import ConfigValue
from penstock.connect.connectors.mirror_base import PACKAGE, ClusterLogs, MirrorConnector, MirrorTask, report_error
from penstock.connect.data import BYTES, OPTIONAL_BYTES, RetriableError, SourceRecord
from penstock.connect.data.records import Header, Headers
from penstock.connect.delivery.outgoing import CopiedBatch, Copy
from penstock.connect.mirror.flows import SOURCE_CONFIG, Flow
from penstock.connect.mirror.offset_syncs import SyncWriter
from penstock.connect.mirror.remote_topics import AclSync, RemoteTopics
from penstock.connect.mirror.replication import MirrorReader, SourcePiece, as_columns, source_partition
from penstock.errors import LogUnavailableError
from penstock.log import Delivery
from penstock.log.base import TopicPartition
from penstock.log.stored import BatchLog

__all__ = ["MirrorSourceConnector", "MirrorSourceTask"]

PARTITIONS, INDEX = "task.assigned.partitions", "task.index"
MOST = 2_000
_MUCH_BYTES = 1 << 20  # after so many there will be more
_SYNCS, _OF_SYNCS = "emit.offset-syncs.enabled", ("offset-syncs-client.", "offset-syncs.topic.")
_UNCOMMITTED = (
    "MirrorSourceConnector can only provide exactly-once guarantees when its source consumer is configured with "
    "isolation.level set to 'read_committed'; otherwise, records from aborted and uncommitted transactions will be "
    "replicated from the source cluster to the target cluster."
)


class MirrorSourceTask(MirrorTask):
    """The records of some partitions of the source cluster."""

    java_class: ClassVar[str] = f"{PACKAGE}.MirrorSourceTask"

    def begin(self, flow: Flow, logs: ClusterLogs, settings: Mapping[str, str]) -> None:
        """Go to the stored offsets of the partitions."""
        self._flow, self._topics = flow, RemoteTopics(flow, logs.source, logs.target)
        self._syncs = SyncWriter(flow, logs.source, logs.target)
        self._reader, self._source = MirrorReader(logs.source), logs.source
        self._as_stored = isinstance(logs.source, BatchLog) and isinstance(logs.target, BatchLog)
        places = [_partition_of(text) for text in settings.get(PARTITIONS, "").split(",") if text]
        stored = self.context.offset_reader.offsets([source_partition(flow, tp) for tp in places])
        for tp, offset in zip(places, stored, strict=True):
            self._reader.begin(tp, offset)

    def poll(self) -> Sequence[SourceRecord] | None:
        """Return the next records of each partition: as the source has them, unless a transformation asks for records.

        Raises:
            RetriableError: The source does not answer.
        """
        try:
            return self._copies() if self.context.copies else self._records()
        except LogUnavailableError as error:
            raise RetriableError(f"the source cluster {self._flow.source.alias} does not answer: {error}") from error

    def _copies(self) -> CopiedBatch | None:
        pieces = [piece for of_topic in self._reader.pieces(as_stored=self._as_stored).values() for piece in of_topic]
        for piece in pieces:
            self._reader.move(piece.tp, piece.next_offset)
        more = any(piece.records.nbytes >= _MUCH_BYTES for piece in pieces)
        return CopiedBatch([self._copy(piece) for piece in pieces], more=more) if pieces else None

    def _copy(self, piece: SourcePiece) -> Copy:
        tp, partition = piece.tp, source_partition(self._flow, piece.tp)
        return Copy(
            tp=self._topics.remote(tp),
            records=piece.records,
            count=piece.count,
            source_partition=partition,
            source_offset={"offset": piece.last},
            columns=lambda: as_columns(self._source, piece).records,
            record=partial(self._record, tp, partition),
            written=partial(self._syncs.note_stretches, tp, piece.stretches),
        )

    def _records(self) -> list[SourceRecord] | None:
        records: list[SourceRecord] = []
        reached: dict[TopicPartition, int] = {}
        for tp in self._reader:
            fetched = self._reader.read(tp, MOST)
            if fetched.records.num_rows:
                partition = source_partition(self._flow, tp)
                records += [self._record(tp, partition, row) for row in fetched.records.to_pylist()]
                reached[tp] = fetched.next_offset
        for tp, next_offset in reached.items():  # not before: if a partition fails, the worker polls again
            self._reader.move(tp, next_offset)
        return records or None

    def commit_record(self, record: SourceRecord, delivery: Delivery | None) -> None:
        """Note the offset of a copy; one between records of other producers has none that is known (-1)."""
        partition, offset = record.source_partition, record.source_offset
        if delivery is not None and delivery.offset >= 0 and partition is not None and offset is not None:
            tp = TopicPartition(partition["topic"], partition["partition"])
            self._syncs.note(tp, offset["offset"], delivery.offset)

    def commit(self) -> None:
        """Write the offset syncs that are due."""
        self._syncs.flush()

    def _record(self, tp: TopicPartition, partition: Mapping[str, Any], row: Mapping[str, Any]) -> SourceRecord:
        remote, value = self._topics.remote(tp), row["value"]
        headers = Headers(Header(each["key"], each["value"], OPTIONAL_BYTES) for each in row.get("headers") or ())
        return SourceRecord(
            topic=remote.topic,
            partition=remote.partition,
            key=row["key"],
            key_schema=OPTIONAL_BYTES,
            value=value,
            value_schema=OPTIONAL_BYTES if value is None else BYTES,
            timestamp=row["timestamp"],
            headers=headers,
            source_partition=partition,
            source_offset={"offset": row["offset"]},
        )


class MirrorSourceConnector(MirrorConnector):
    """The topics of the source cluster, copied to the target."""

    java_class: ClassVar[str] = f"{PACKAGE}.MirrorSourceConnector"
    config = SOURCE_CONFIG
    task_class = MirrorSourceTask
    partition_texts = ("cluster", "topic")
    only_zero = False
    _places: tuple[TopicPartition, ...] = ()

    def validate(self, settings: Mapping[str, str | None]) -> dict[str, ConfigValue]:
        """Validate a config: exactly once needs committed reads, and settings of offset syncs need offset syncs."""
        values = super().validate(settings)
        if settings.get("exactly.once.support") == "required" and not _reads_committed(settings):
            report_error(values, "exactly.once.support", _UNCOMMITTED)
        name = "emit.offset-syncs.enabled"
        if settings.get(name) == "false" and any(
            each.startswith(("offset-syncs-client.", "offset-syncs.topic.")) for each in settings
        ):
            report_error(
                values, name, f"MirrorSourceConnector can't setup offset-syncs feature while {name} set to false"
            )
        return values

    def exactly_once_support(self, settings: Mapping[str, str]) -> ExactlyOnce | None:
        """Supported with ``consumer.isolation.level=read_committed``."""
        return ExactlyOnce.SUPPORTED if _reads_committed(settings) else ExactlyOnce.UNSUPPORTED

    def begin(self, flow: Flow, logs: ClusterLogs) -> None:
        """Create the topics in the target."""
        SyncWriter(flow, logs.source, logs.target)  # creates its topic before the first task
        topics = RemoteTopics(flow, logs.source, logs.target)

        def look() -> bool:
            before, self._places = self._places, tuple(topics.refresh())
            return before != self._places

        look()
        if flow.setting("refresh.topics.enabled"):
            self.watch(look, flow.setting("refresh.topics.interval.seconds"))
        if flow.setting("sync.topic.acls.enabled"):
            acls = AclSync(flow, logs.source, logs.target)

            def copy_acls() -> bool:
                acls.sync()
                return False  # the tasks stay as they are

            copy_acls()
            self.watch(copy_acls, flow.setting("sync.topic.acls.interval.seconds"))

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Return the partitions, dealt out to the tasks; no task without partitions."""
        places = [f"{tp.topic}-{tp.partition}" for tp in self._places]
        shares = [places[number::max_tasks] for number in range(min(max_tasks, len(places)))]
        return [
            {**self._settings, PARTITIONS: ",".join(share), INDEX: str(number)} for number, share in enumerate(shares)
        ]


def _reads_committed(settings: Mapping[str, str | None]) -> bool:
    own = settings.get("source.consumer.isolation.level")
    return (own if own is not None else settings.get("consumer.isolation.level")) == "read_committed"


def _partition_of(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))
