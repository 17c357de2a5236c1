"""The inputs of a case as records of a log, and the headers of both as they stand in a case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.log.base import HEADERS_TYPE
from penstock.serde.primitives import BytesSerde

__all__ = ["header_rows", "input_batches", "input_bytes", "input_headers"]

Header = tuple[str, bytes | None]


def input_bytes(record: Mapping[str, Any], serdes: tuple[Any, Any]) -> tuple[bytes | None, bytes | None]:
    """The bytes of the key and the value of an input; ``key_hex`` and ``value_hex`` are bytes as they are."""
    return _bytes_of(record, "key", serdes[0]), _bytes_of(record, "value", serdes[1])


def _bytes_of(record: Mapping[str, Any], part: str, serde: Any) -> bytes | None:
    if f"{part}_hex" in record:
        return bytes.fromhex(record[f"{part}_hex"])
    if isinstance(serde, BytesSerde):
        return None if record[part] is None else bytes.fromhex(record[part])
    return serde.serialize(record[part])  # type: ignore[no-any-return]


def input_headers(record: Mapping[str, Any]) -> tuple[Header, ...]:
    """The headers of an input: a value is a text, null, or ``{"hex": ...}``."""
    return tuple((name, _header_bytes(value)) for name, value in record.get("headers", ()))


def header_rows(headers: Iterable[Header]) -> list[list[Any]]:
    """Headers as they stand in a case."""
    return [[name, _header_row(value)] for name, value in headers]


def _header_bytes(value: Any) -> bytes | None:
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    return None if value is None else value.encode()


def _header_row(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def input_batches(
    records: Sequence[dict[str, Any]], serdes: Mapping[str, tuple[Any, Any]]
) -> dict[str, pa.RecordBatch]:
    """The records of each topic, in order; ``serdes`` has those of keys and values by topic."""
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        by_topic.setdefault(record["topic"], []).append(record)
    return {topic: _batch(rows, *serdes[topic]) for topic, rows in by_topic.items()}


def _batch(rows: list[dict[str, Any]], keys: Any, values: Any) -> pa.RecordBatch:
    headers = [[{"key": name, "value": value} for name, value in input_headers(row)] or None for row in rows]
    pairs = [input_bytes(row, (keys, values)) for row in rows]
    columns = {
        "timestamp": pa.array([row["timestamp"] for row in rows], pa.int64()),
        "key": pa.array([key for key, _ in pairs], pa.large_binary()),
        "value": pa.array([value for _, value in pairs], pa.large_binary()),
        "headers": pa.array(headers, HEADERS_TYPE),
    }
    return pa.RecordBatch.from_pydict(columns)
