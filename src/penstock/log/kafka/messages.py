"""librdkafka's messages as record batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.log.base import HEADERS_TYPE, RECORD_SCHEMA

if TYPE_CHECKING:
    from confluent_kafka import Message

__all__ = ["batch_of"]


def batch_of(messages: list[Message], offsets: list[int]) -> pa.RecordBatch:
    """Messages of one partition, none of them an error, with their offsets."""
    headers = [message.headers() for message in messages]
    packed: pa.Array = pa.nulls(len(messages), HEADERS_TYPE)
    if any(headers):
        packed = pa.array([None if not h else [{"key": k, "value": v} for k, v in h] for h in headers], HEADERS_TYPE)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(offsets, pa.int64()),
            pa.array([message.timestamp()[1] for message in messages], pa.int64()),
            pa.array([message.key() for message in messages], pa.large_binary()),
            pa.array([message.value() for message in messages], pa.large_binary()),
            packed,
        ],
        schema=RECORD_SCHEMA,
    )
