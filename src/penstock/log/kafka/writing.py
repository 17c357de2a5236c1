"""Records on their way to Kafka: of the right types, with a time each."""

from __future__ import annotations

import time

import pyarrow as pa

from penstock.errors import LogError
from penstock.log.base import TopicPartition

__all__ = ["Part", "checked", "placed"]

Part = tuple[str, int, pa.RecordBatch]  # topic, partition, records
_WANTED = {"timestamp": pa.int64(), "key": pa.large_binary(), "value": pa.large_binary()}


def checked(topic: str, partition: int, records: pa.RecordBatch) -> pa.RecordBatch:
    """The records with columns of the right types; what is missing is null, a missing time is now.

    Raises:
        LogError: They cannot be made so.
    """
    names = set(records.schema.names)
    try:
        for name, kind in _WANTED.items():
            if name not in names:
                records = records.append_column(name, pa.nulls(records.num_rows, kind))
            elif records.column(name).type != kind:
                index = records.schema.get_field_index(name)
                records = records.set_column(index, name, records.column(name).cast(kind))
    except pa.ArrowInvalid as error:
        raise LogError(f"{topic}-{partition}: records of the wrong types: {error}", hint="use RECORD_SCHEMA") from error
    if records.column("timestamp").null_count:
        times = records.column("timestamp").fill_null(time.time_ns() // 1_000_000)
        records = records.set_column(records.schema.get_field_index("timestamp"), "timestamp", times)
    return records


def placed(part: Part) -> tuple[TopicPartition, pa.RecordBatch]:
    """A part as the producers of the protocol take it."""
    topic, partition, records = part
    return TopicPartition(topic, partition), records
