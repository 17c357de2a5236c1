"""Batches that a sink refuses, put again record by record to find the ones at fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.connect.data import DataError, RetriableError, SinkRecord

__all__ = ["FailedPut", "put_by_record"]


@dataclass(frozen=True, slots=True)
class FailedPut:
    """A record that a sink refuses.

    Attributes:
        record: The record.
        error: The error of the sink.
    """

    record: SinkRecord
    error: Exception


def put_by_record(
    put: Callable[[Sequence[SinkRecord]], None], batch: Sequence[SinkRecord], error: Exception
) -> Sequence[FailedPut] | None:
    """Put each record of a batch that has failed by itself.

    Args:
        put: Puts records.
        batch: The batch.
        error: The error of the batch.

    Returns:
        The records that fail; None if the target is at fault and not the records: all of them fail, and not one with
        an error of data.

    Raises:
        RetriableError: The target is away for now.

    Example:
        >>> def put(records):
        ...     if any(record.value == "bad" for record in records):
        ...         raise DataError("bad")
        >>> batch = [SinkRecord(topic="t", offset=at, value=value) for at, value in enumerate(["a", "bad", "c"])]
        >>> [each.record.offset for each in put_by_record(put, batch, DataError("bad"))]
        [1]
    """
    if len(batch) <= 1:
        return [FailedPut(batch[0], error)] if batch and isinstance(error, DataError) else None
    failed: list[FailedPut] = []
    for record in batch:
        try:
            put([record])
        except RetriableError:
            raise
        except Exception as single:  # noqa: BLE001 - whatever the sink raises is reported
            failed.append(FailedPut(record, single))
            if len(failed) == len(batch) and not any(isinstance(each.error, DataError) for each in failed):
                return None
    return failed
