"""Failed transactions: whether another attempt follows, and the search for the records that were refused."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from penstock.base.backoff import Backoff
from penstock.errors import PenstockError, ProductionError
from penstock.log.kafka.error_codes import ErrorCategory
from penstock.log.kafka.failures import category_of, error_of, failure, patience_for
from penstock.log.stored_batches import StoredRecords

if TYPE_CHECKING:
    from confluent_kafka import KafkaException
    from numpy.typing import NDArray

    from penstock.log.kafka.transactions.core import KafkaCore
    from penstock.log.kafka.wire.produce import NotWrittenError
    from penstock.log.kafka.writing import AnyPart

__all__ = ["TransactionAttempts", "refusal"]

_MOST_FENCED = 8
_FENCED_USUALLY = 3
_AFTER_FENCING = Backoff(0.15, 3.0, jitter=2 / 3)  # at random, so that two processes stop fencing each other
_FOR_A_LEADER = Backoff(0.15, 0.45, jitter=2 / 3)  # an election is over soon


class TransactionAttempts:
    """The failed attempts of one transaction.

    Patience counts from the first failure: after an attempt that takes longer than that there may still be another.

    Args:
        patience_s: The time for retries after the first failure.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._first: float | None = None
        self._fenced, self._is_fenced = 0, False
        self._pauses = 0

    def allow_retry(self, error: KafkaException) -> bool:
        """Count a failure, and return whether to try again."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        self._is_fenced = category_of(error) is ErrorCategory.FENCED
        self._fenced += self._is_fenced
        return self._fenced <= _MOST_FENCED and now - self._first <= patience_for(error, self._patience_s)

    @property
    def is_ordinary(self) -> bool:
        """Whether the failures are ordinary: a task that moves to another process fences the one before."""
        return self._is_fenced and self._fenced < _FENCED_USUALLY

    def pause_s(self) -> float:
        """Return the wait before the next attempt; the first that is fenced has none."""
        if self._is_fenced and self._fenced == 1:
            return 0.0
        self._pauses += 1
        return (_AFTER_FENCING if self._is_fenced else _FOR_A_LEADER).pause_s(self._pauses)


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
