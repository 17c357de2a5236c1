"""Which records of a transaction a broker has refused for good: it names the topic, not the records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.log.kafka.log import KafkaLog
    from penstock.log.kafka.writing import Part

__all__ = ["is_too_large", "record_limit", "refused_rows"]

_OVERHEAD_BYTES = 70  # a record batch's header, and what stands around a record
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}


def is_too_large(code: int) -> bool:
    """Whether a record, or a batch of them, is larger than allowed."""
    return code in _TOO_LARGE


def record_limit(log: KafkaLog, topic: str) -> int:
    """The largest record batch that a topic takes from this client."""
    own = log.clients.max_request_bytes
    return min(own, int(log.topic_setting(topic, "max.message.bytes")))


def refused_rows(log: KafkaLog, parts: Sequence[Part], topic: str, code: int) -> dict[int, list[int]]:
    """Part number -> rows that were refused; empty if the records are fine one by one."""
    found = {}
    limit = record_limit(log, topic) if is_too_large(code) else 0
    for number, (name, _, records) in enumerate(parts):
        if name != topic:
            continue
        if is_too_large(code):
            wrong = _sizes(records) + _OVERHEAD_BYTES > limit
        elif code == KafkaError.INVALID_RECORD:  # a compacted topic wants keys
            wrong = np.asarray(pc.is_null(records.column("key")))
        else:
            wrong = np.ones(records.num_rows, bool)
        if wrong.any():
            found[number] = np.flatnonzero(wrong).tolist()
    return found


def _sizes(records: pa.RecordBatch) -> NDArray[np.int64]:
    total = np.zeros(records.num_rows, np.int64)
    for name in ("key", "value"):
        if name in records.schema.names:
            total += np.asarray(pc.fill_null(pc.binary_length(records.column(name)), 0)).astype(np.int64)
    if "headers" in records.schema.names and records.column("headers").null_count < records.num_rows:
        for row, headers in enumerate(records.column("headers").to_pylist()):
            total[row] += sum(len(h["key"]) + len(h["value"] or b"") + 4 for h in headers or ())
    return total
