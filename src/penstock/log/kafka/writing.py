"""Preparation of records for Kafka: types and timestamps."""

from __future__ import annotations

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.errors import LogError
from penstock.log.stored_batches import StoredRecords

__all__ = ["AnyPart", "Part", "checked"]

Part = tuple[str, int, pa.RecordBatch]  # topic, partition, records
AnyPart = tuple[str, int, pa.RecordBatch | StoredRecords]
_WANTED = {"timestamp": pa.int64(), "key": pa.large_binary(), "value": pa.large_binary()}


def checked(topic: str, partition: int, records: pa.RecordBatch) -> pa.RecordBatch:
    """Return records with columns of the right types; missing columns become null, missing times become now.

    Raises:
        LogError: A column cannot be cast.
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
        times = records.column("timestamp").fill_null(unix_ms())
        records = records.set_column(records.schema.get_field_index("timestamp"), "timestamp", times)
    return records
