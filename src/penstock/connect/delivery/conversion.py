"""Records to bytes and back, by the three converters of a connector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.config.prefixes import behind_prefix
from penstock.connect.converters import Converter, Role
from penstock.connect.data import Header, Headers, SettingError, SinkRecord, SourceRecord
from penstock.connect.plugins import PluginKind, Plugins, WorkerSettings
from penstock.log.base import RECORD_SCHEMA, TopicPartition
from penstock.serde.partitioner import partition_for

__all__ = ["Converters", "Encoded", "batches_of"]

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
    """Records as batches by partition, each partition's in the order of the records.

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
