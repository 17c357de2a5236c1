"""Records of topics to a sink's records, many at a time: columns where nothing asks for single records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.connect.converters import Converter
from penstock.connect.data import Header, Headers, Schema, SinkColumns, SinkRecord
from penstock.connect.delivery.pipeline import Pipeline
from penstock.log import ConsumerRecord, TopicPartition
from penstock.log.consumer_interface import records_of

__all__ = ["Incoming", "Originals", "SinkSteps"]

Incoming = list[SinkColumns | SinkRecord]


class Originals:
    """The records of the current batch as they were read, by their place."""

    def __init__(self) -> None:
        self._batches: list[tuple[TopicPartition, pa.RecordBatch]] = []

    def add(self, tp: TopicPartition, batch: pa.RecordBatch) -> None:
        """Keep a batch."""
        self._batches.append((tp, batch))

    def clear(self) -> None:
        """Forget all."""
        self._batches.clear()

    def get(self, where: tuple[str | None, int | None, int | None]) -> ConsumerRecord | None:
        """Return the record of a topic, partition and offset."""
        topic, number, offset = where
        for tp, batch in self._batches:
            if (tp.topic, tp.partition) != (topic, number):
                continue
            offsets = batch.column("offset").to_numpy()
            row = int(offsets.searchsorted(offset))
            if row < len(offsets) and offsets[row] == offset:
                return next(records_of(tp, batch.slice(row, 1)))
        return None


class SinkSteps:
    """Converts and transforms what was read from topics.

    Args:
        pipeline: Converters, transformations and the handling of errors.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def convert(self, tp: TopicPartition, batch: pa.RecordBatch) -> Incoming:
        """Return the records of a batch (RECORD_SCHEMA) of a partition, without those that are dropped or skipped.

        Raises:
            ConnectError: A record has failed, and errors are not tolerated.
        """
        columns = self._columns(tp, batch)
        if columns is None:
            return self._rows(tp, batch)
        columns, left = self._pipeline.columns(columns)
        if not left:
            return [columns]
        incoming: Incoming = []
        for row, record in enumerate(columns.records()):
            original = partial(_original, tp, batch, row)
            _, kept = self._pipeline.transformed(record, original, stages=left)
            if kept is not None:
                incoming.append(kept)
        return incoming

    def _columns(self, tp: TopicPartition, batch: pa.RecordBatch) -> SinkColumns | None:
        headers = batch.column("headers")
        if headers.null_count < len(headers):
            return None
        converters = self._pipeline.converters
        try:
            keys = _decoded(converters.key, tp.topic, batch.column("key"))
            values = _decoded(converters.value, tp.topic, batch.column("value"))
        except Exception:  # noqa: BLE001 - record by record it is known which one has failed
            return None
        if keys is None or values is None:
            return None
        offsets, times = batch.column("offset").to_pylist(), batch.column("timestamp").to_pylist()
        return SinkColumns(tp.topic, tp.partition, offsets, times, keys[1], keys[0], values[1], values[0])

    def _rows(self, tp: TopicPartition, batch: pa.RecordBatch) -> Incoming:
        incoming: Incoming = []
        for original in records_of(tp, batch):
            record = self._converted(original)
            if record is None:
                continue
            _, kept = self._pipeline.transformed(record, lambda original=original: original)  # type: ignore[misc]
            if kept is not None:
                incoming.append(kept)
        return incoming

    def _converted(self, original: ConsumerRecord) -> SinkRecord | None:
        topic, converters = original.topic, self._pipeline.converters

        def headers() -> Headers:
            converted = ((name, converters.header.to_connect(topic, data)) for name, data in original.headers)
            return Headers(Header(name, each.value, each.schema) for name, each in converted)

        steps: list[tuple[str, Converter, Callable[[], Any]]] = [
            ("KEY_CONVERTER", converters.key, lambda: converters.key.to_connect(topic, original.key)),
            ("VALUE_CONVERTER", converters.value, lambda: converters.value.to_connect(topic, original.value)),
            ("HEADER_CONVERTER", converters.header, headers),
        ]
        parts: list[Any] = []
        for stage, converter, operation in steps:
            passed, result = self._pipeline.errors.run((stage, type(converter).java_class), operation, original)
            if not passed:
                return None
            parts.append(result)
        key, value, packed = parts
        return SinkRecord(
            topic=topic, partition=original.partition, offset=original.offset, timestamp=original.timestamp,
            timestamp_type="CreateTime", key=key.value, key_schema=key.schema, value=value.value,
            value_schema=value.schema, headers=packed,
        )  # fmt: skip


def _decoded(converter: Converter, topic: str, column: pa.Array) -> tuple[Schema | None, Sequence[Any]] | None:
    if column.null_count == len(column):
        none = converter.to_connect(topic, None)
        return none.schema, [none.value] * len(column)
    return converter.all_to_connect(topic, column.to_pylist())


def _original(tp: TopicPartition, batch: pa.RecordBatch, row: int) -> ConsumerRecord:
    return next(records_of(tp, batch.slice(row, 1)))
