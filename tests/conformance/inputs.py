"""The inputs of a case as records of a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.log.base import HEADERS_TYPE

__all__ = ["input_batches"]


def input_batches(
    records: Sequence[dict[str, Any]], serdes: Mapping[str, tuple[Any, Any]]
) -> dict[str, pa.RecordBatch]:
    """The records of each topic, in order; ``serdes`` has those of keys and values by topic."""
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        by_topic.setdefault(record["topic"], []).append(record)
    return {topic: _batch(rows, *serdes[topic]) for topic, rows in by_topic.items()}


def _batch(rows: list[dict[str, Any]], keys: Any, values: Any) -> pa.RecordBatch:
    headers = [
        [{"key": n, "value": None if t is None else t.encode()} for n, t in row["headers"]]
        if row.get("headers")
        else None
        for row in rows
    ]
    columns = {
        "timestamp": pa.array([row["timestamp"] for row in rows], pa.int64()),
        "key": pa.array([keys.serialize(row["key"]) for row in rows], pa.large_binary()),
        "value": pa.array([values.serialize(row["value"]) for row in rows], pa.large_binary()),
        "headers": pa.array(headers, HEADERS_TYPE),
    }
    return pa.RecordBatch.from_pydict(columns)
