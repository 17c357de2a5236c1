"""The search for the refused records of a transaction: the broker names only their topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from penstock.errors import PenstockError, ProductionError
from penstock.log.kafka.failures import error_of, failure
from penstock.log.stored import StoredRecords

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.log.kafka.transactions.core import KafkaCore
    from penstock.log.kafka.wire.produce import NotWrittenError
    from penstock.log.kafka.writing import AnyPart

__all__ = ["is_too_large", "refusal", "refused_rows"]

_OVERHEAD_BYTES = 70  # the header of a record batch, and the framing of a record
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}


def is_too_large(code: int) -> bool:
    """Return whether an error is about the size of a record or batch."""
    return code in _TOO_LARGE


def refusal(log: KafkaCore, parts: Sequence[AnyPart], error: NotWrittenError) -> PenstockError | None:
    """Return the error of refused records, which are listed in ``refused``.

    None if they may be written again: each record is small enough, but they were packed into batches that are not;
    the log's next batches are smaller.
    """
    inner, tp = error_of(error), error.tp
    doing = f"writing to {tp.topic}-{tp.partition}"
    where = {"topic": tp.topic, "partition": tp.partition, "operation": "WRITE"}
    problem = failure(error, doing, log.clients.access, **where)
    if isinstance(problem, ProductionError):
        too_large = is_too_large(inner.code())
        limit_bytes = log.batch_limit_bytes(tp.topic) if too_large else 0
        if any(isinstance(records, StoredRecords) and name == tp.topic for name, _, records in parts):
            return problem  # batches of another log, which are not cut here
        problem.facts["refused"] = refused_rows(parts, tp.topic, inner.code(), limit_bytes)
        if not problem.facts["refused"] and too_large:
            log.clients.limit_batches(limit_bytes)
            return None
    return problem


def refused_rows(parts: Sequence[AnyPart], topic: str, code: int, limit_bytes: int) -> dict[int, list[int]]:
    """Return the refused rows by number of part; empty if each record alone is acceptable.

    Args:
        parts: The records of the transaction.
        topic: The topic whose records were refused.
        code: Kafka's error code.
        limit_bytes: The largest record batch that the topic accepts.
    """
    rows_by_part = {}
    for number, (name, _, records) in enumerate(parts):
        if name != topic or isinstance(records, StoredRecords):
            continue
        if is_too_large(code):
            wrong = _sizes(records) + _OVERHEAD_BYTES > limit_bytes
        elif code == KafkaError.INVALID_RECORD:  # a compacted topic requires keys
            wrong = np.asarray(pc.is_null(records.column("key")))
        else:
            wrong = np.ones(records.num_rows, bool)
        if wrong.any():
            rows_by_part[number] = np.flatnonzero(wrong).tolist()
    return rows_by_part


def _sizes(records: pa.RecordBatch) -> NDArray[np.int64]:
    total = np.zeros(records.num_rows, np.int64)
    for name in ("key", "value"):
        if name in records.schema.names:
            total += np.asarray(pc.fill_null(pc.binary_length(records.column(name)), 0)).astype(np.int64)
    if "headers" in records.schema.names and records.column("headers").null_count < records.num_rows:
        for row, headers in enumerate(records.column("headers").to_pylist()):
            total[row] += sum(len(h["key"]) + len(h["value"] or b"") + 4 for h in headers or ())
    return total
