"""The rows of INSERT ... VALUES as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.log.base import TopicLog
from penstock.serde.headers import bound, configured
from penstock.serde.partitioner import partition_for
from penstock.sql.analyse import InsertedRow
from penstock.sql.compile import source_serdes

__all__ = ["write_row"]


def write_row(log: TopicLog, row: InsertedRow, app: Mapping[str, Any]) -> None:
    """Write a row as a record of its topic.

    Args:
        log: The log.
        row: The row.
        app: Settings of applications, such as those of the registry.

    Raises:
        PenstockError: The format cannot hold the values, or there is no such topic.
    """
    topic = row.source.topic
    serdes = (configured(serde, app) for serde in source_serdes(row.source))
    key_serde, value_serde = (bound(serde, topic, part) for serde, part in zip(serdes, ("key", "value"), strict=True))
    key, value = key_serde.serialize(row.key), value_serde.serialize(row.value)
    count = log.partitions(topic)
    now = unix_ms()
    columns = {
        "timestamp": pa.array([now if row.timestamp is None else row.timestamp], pa.int64()),
        "key": pa.array([key], pa.large_binary()),
        "value": pa.array([value], pa.large_binary()),
    }
    target = partition_for(key, count) if key is not None else now % count
    log.append(topic, target, pa.RecordBatch.from_pydict(columns))
