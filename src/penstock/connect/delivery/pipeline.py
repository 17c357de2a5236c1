"""What each record goes through besides the task: transformations, converters, errors; steps that can die."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

import pyarrow as pa

from penstock.config.prefixes import behind_prefix
from penstock.connect.converters import ByteArrayConverter, Converter, Role
from penstock.connect.data import (
    ConnectRecord,
    Header,
    Headers,
    SettingError,
    SinkColumns,
    SinkRecord,
    SourceBatch,
    SourceRecord,
)
from penstock.connect.delivery.record_errors import ErrorHandler, Tolerance
from penstock.connect.plugins import (
    PluginKind,
    Plugins,
    Stage,
    TransformationChain,
    WorkerSettings,
    transformation_chain,
)
from penstock.connect.transforms import SidedTransformation
from penstock.log import ConsumerRecord
from penstock.log.base import RECORD_SCHEMA, TopicPartition
from penstock.log.partitioner import partition_for

__all__ = ["Converters", "Encoded", "OnStep", "Pipeline", "Step", "batches_of"]


class Step(Enum):
    """A step that is done. Of sources: POLLED to COMMITTED; of sinks: READ to COMMITTED."""

    POLLED = "the source was polled"
    CONVERTED = "records were transformed and converted"
    WRITTEN = "records and source offsets are in an open transaction"
    READ = "records were read from topics and converted"
    PUT = "the sink has taken records"
    FLUSHED = "the sink has flushed"
    COMMITTED = "the transaction, or the group's offsets, are committed"


OnStep = Callable[[Step], None]


ROLES: dict[Role, PluginKind] = {
    "key": PluginKind.CONVERTER,
    "value": PluginKind.CONVERTER,
    "header": PluginKind.HEADER_CONVERTER,
}


@dataclass(frozen=True, slots=True)
class Encoded:
    """A record as a topic holds it.

    Attributes:
        topic: The topic.
        partition: The partition; None: the key decides, or the turn of records without one.
        timestamp: Milliseconds since 1970.
        key: The key's bytes.
        value: The value's bytes.
        headers: Names and bytes.
    """

    topic: str
    partition: int | None
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Converters:
    """The converters of keys, values and headers.

    Attributes:
        key: That of keys.
        value: That of values.
        header: That of headers.
    """

    key: Converter
    value: Converter
    header: Converter

    @classmethod
    def of(cls, config: Mapping[str, Any], plugins: Plugins, worker: Mapping[str, Any] | None = None) -> Converters:
        """Return the converters of a connector.

        Its own with its own settings, else the worker's with the worker's settings.

        Args:
            config: The connector's config.
            plugins: The plugins that there are.
            worker: The worker's settings; by default Kafka's defaults.

        Raises:
            SettingError: There is no such converter, or a setting of one is wrong.
        """
        return cls(*(_converter(role, config, plugins, worker or {}) for role in ROLES))

    def encode(self, record: SourceRecord, now_ms: int) -> Encoded:
        """Return the bytes of a source's record.

        Raises:
            DataError: A converter cannot write it.
            SettingError: The record has no topic.
        """
        topic = record.topic
        if not topic:
            raise SettingError("a record without topic", hint="Set the topic of each record that the source makes.")
        return Encoded(
            topic,
            record.partition,
            now_ms if record.timestamp is None else record.timestamp,
            self.key.from_connect(topic, record.key_schema, record.key),
            self.value.from_connect(topic, record.value_schema, record.value),
            tuple((h.key, self.header.from_connect(topic, h.schema, h.value)) for h in record.headers),
        )

    def decode(self, tp: TopicPartition, row: Mapping[str, Any]) -> SinkRecord:
        """Return the record of a row of a topic (RECORD_SCHEMA).

        Raises:
            DataError: A converter cannot read it.
        """
        key = self.key.to_connect(tp.topic, row["key"])
        value = self.value.to_connect(tp.topic, row["value"])
        headers = []
        for part in row["headers"] or ():
            header = self.header.to_connect(tp.topic, part["value"])
            headers.append(Header(part["key"], header.value, header.schema))
        return SinkRecord(
            topic=tp.topic,
            partition=tp.partition,
            offset=row["offset"],
            timestamp=row["timestamp"],
            timestamp_type="CreateTime",
            key=key.value,
            key_schema=key.schema,
            value=value.value,
            value_schema=value.schema,
            headers=Headers(headers),
        )


def batches_of(
    records: list[Encoded], partitions: Mapping[str, int], turn: int
) -> list[tuple[TopicPartition, pa.RecordBatch]]:
    """Return records as batches by partition, each partition's in the order of the records.

    Args:
        records: The records.
        partitions: The number of partitions of each topic.
        turn: Chooses the partition of records that have neither key nor partition.
    """
    grouped: dict[TopicPartition, list[Encoded]] = {}
    for record in records:
        count = partitions[record.topic]
        if record.partition is not None:
            number = record.partition
        elif record.key is not None:
            number = partition_for(record.key, count)
        else:
            number = turn % count
        grouped.setdefault(TopicPartition(record.topic, number), []).append(record)
    return [(tp, _batch(part)) for tp, part in grouped.items()]


def _batch(records: list[Encoded]) -> pa.RecordBatch:
    headers = [[{"key": k, "value": v} for k, v in r.headers] if r.headers else None for r in records]
    columns: dict[str, list[Any]] = {
        "timestamp": [r.timestamp for r in records],
        "key": [r.key for r in records],
        "value": [r.value for r in records],
        "headers": headers,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(column, RECORD_SCHEMA.field(name).type) for name, column in columns.items()], list(columns)
    )


def _converter(role: Role, config: Mapping[str, Any], plugins: Plugins, worker: Mapping[str, Any]) -> Converter:
    name = f"{role}.converter"
    source = config if config.get(name) else worker
    chosen = source.get(name) or WorkerSettings().converter(name)
    try:
        plugin = plugins.find(str(chosen)).require(ROLES[role])
    except LookupError as error:
        raise SettingError.invalid(name, chosen, f"Class {chosen} could not be found.") from error
    converter: Converter = plugin.make()
    converter.configure(behind_prefix(source, f"{name}."), role)
    return converter


R = TypeVar("R", bound=ConnectRecord)
B = TypeVar("B", SourceBatch, SinkColumns)


def _strict() -> ErrorHandler:
    return ErrorHandler(Tolerance(), time.sleep)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The steps of a connector's records.

    Attributes:
        converters: The converters.
        chain: The transformations.
        errors: Decides about records that fail; by default the first one ends the task.
    """

    converters: Converters
    chain: TransformationChain = field(default_factory=TransformationChain)
    errors: ErrorHandler = field(default_factory=_strict)

    @classmethod
    def of(cls, config: Mapping[str, Any], plugins: Plugins, worker: Mapping[str, Any] | None = None) -> Pipeline:
        """Return the steps of a connector without a worker.

        Its first failed record ends it, unless errors are tolerated.

        Args:
            config: The connector's config.
            plugins: The plugins that there are.
            worker: The settings of converters that the config does not name.

        Raises:
            SettingError: There is no such plugin, or a setting of one is wrong.
        """
        converters = Converters.of(config, plugins, worker)
        errors = ErrorHandler(Tolerance.of(config), time.sleep)
        return cls(converters, transformation_chain(config, plugins), errors)

    @property
    def copies(self) -> bool:
        """Whether bytes come out as they go in: no transformation, and converters of bytes alone."""
        converters = (self.converters.key, self.converters.value, self.converters.header)
        return not self.chain.stages and all(type(each) is ByteArrayConverter for each in converters)

    def columns(self, batch: B) -> tuple[B, tuple[Stage, ...]]:
        """Take a batch through the first transformations, those that change all keys or values at once.

        Returns:
            The batch, and the transformations that are left for its records.
        """
        stages = self.chain.stages
        for number, stage in enumerate(stages):
            transformation = stage.transformation
            if stage.predicate is not None or not isinstance(transformation, SidedTransformation):
                return batch, stages[number:]
            is_key = transformation.side == "key"
            schema, column = (batch.key_schema, batch.keys) if is_key else (batch.value_schema, batch.values)
            try:
                updated = None if column is None else transformation.all_updated(schema, column)
            except Exception:  # noqa: BLE001 - record by record it is known which one has failed
                updated = None
            if updated is None:
                return batch, stages[number:]
            if is_key:
                batch = replace(batch, key_schema=updated[0], keys=updated[1])
            else:
                batch = replace(batch, value_schema=updated[0], values=updated[1])
        return batch, ()

    def transformed(
        self,
        record: R,
        original: Callable[[], ConsumerRecord] | None = None,
        *,
        shown: Callable[[], SourceRecord] | None = None,
        stages: Sequence[Stage] | None = None,
    ) -> tuple[bool, R | None]:
        """Take a record through the transformations.

        Args:
            record: The record.
            original: Finds the record as it was read from a topic, for reports; None: it is a source's.
            shown: Finds a source's record as its task made it, for reports; by default it is this one.
            stages: The transformations; by default all.

        Returns:
            Whether none has failed, and the record; None: it is dropped.

        Raises:
            ConnectError: One has failed, and errors are not tolerated.
        """
        current: R | None = record
        for stage in self.chain.stages if stages is None else stages:
            if current is None:
                break
            now = current
            try:
                current = stage.apply(now)
            except Exception as error:  # noqa: BLE001 - whatever a plugin raises
                step = ("TRANSFORMATION", type(stage.transformation).java_class)
                read = None if original is None else original()
                told = None if read is not None else record if shown is None else shown()
                passed, current = self.errors.after(
                    error, step, lambda stage=stage, now=now: stage.apply(now), read, told  # type: ignore[misc]
                )  # fmt: skip
                if not passed:
                    return False, None
        return True, current

    def close(self) -> None:
        """Close the transformations."""
        self.chain.close()
