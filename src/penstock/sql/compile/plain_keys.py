"""Keys of one column as its values: what the results of a SELECT have when they go on in Python.

Inside a query each key is a tuple of its columns. Outside, in topics and in Python, a key of one column is the value of
that column, as in ksqlDB: `5`, not `(5,)`. The bytes of both are the same, so nothing is repartitioned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.api.handle import handle_of
from penstock.api.options import Materialized
from penstock.api.serdes import UNKNOWN
from penstock.api.stream import KStream
from penstock.api.table import KTable
from penstock.serde.base import BaseSerde
from penstock.serde.column import Column, RowColumn
from penstock.serde.windowed import SessionWindowedSerde, TimeWindowedSerde, Windowed, WindowedColumn
from penstock.sql.analyse.plans import PlanStep
from penstock.sql.compile.serdes import RowsSerde, step_key_serde
from penstock.sql.compile.steps import types_of
from penstock.topology.building.graph import ProcessorGraph
from penstock.topology.operations.base import SelectKey
from penstock.topology.operations.functions import ColumnFunction, Function

__all__ = ["with_plain_keys"]


def with_plain_keys(rows: Any, step: PlanStep) -> Any:
    """Return the stream or table of a step's rows with plain keys; as it is, unless its keys have one column."""
    if len(step.key) != 1:
        return rows
    if not isinstance(rows, KTable):
        return _stream(rows, step)
    stream = _stream(rows.to_stream(), step)
    return stream.to_table(Materialized(value_serde=RowsSerde(types_of(step.fields))))


def _stream(rows: KStream[Any, Any], step: PlanStep) -> KStream[Any, Any]:
    above = handle_of(rows)
    graph = ProcessorGraph(
        name=above.builder.names.processor("KSTREAM-KEY-SELECT-"),
        operation=lambda: SelectKey(Function.wrap(_PlainKey(), verb="select_key", allowed=(2,))),
        changes_key=above.needs_repartition,  # a repartition topic that several share must not move above it
    )
    below = above.below(graph, keys=above.needs_repartition, values=False)
    tuples = step_key_serde(step) if above.key_serde in {None, UNKNOWN} else above.key_serde
    return KStream(replace(below, key_serde=_plain_serde(tuples)))


def _plain_serde(tuples: Any) -> Any:
    if isinstance(tuples, TimeWindowedSerde):
        return TimeWindowedSerde(_PlainKeySerde(tuples.inner), tuples.size_ms)
    if isinstance(tuples, SessionWindowedSerde):
        return SessionWindowedSerde(_PlainKeySerde(tuples.inner))
    return _PlainKeySerde(tuples)


class _PlainKey(ColumnFunction):
    """The plain key of a tuple of one column, within its window if it has one."""

    def __call__(self, key: Any, value: Any) -> Any:
        del value
        if isinstance(key, Windowed):
            plain = None if key.key is None else key.key[0]
            return None if plain is None else Windowed(plain, key.window)
        return None if key is None else key[0]

    def over_columns(self, *arguments: Column) -> Column | None:
        keys = arguments[0]
        if isinstance(keys, WindowedColumn):
            plain = _only(keys.keys)
            return None if plain is None else WindowedColumn(plain, keys.starts, keys.ends)
        return _only(keys)


def _only(keys: Column) -> Column | None:
    """Return the only column of keys, with nulls where a key is null; None: they come as tuples."""
    return keys.shown()[0] if isinstance(keys, RowColumn) else None


class _PlainKeySerde(BaseSerde):
    """A serde of tuples of one column as one of the column's values."""

    def __init__(self, tuples: Any) -> None:
        self._tuples = tuples

    @property
    def name(self) -> str:
        return str(self._tuples.name)  # it stands for the bytes, which are the same

    def serialize(self, value: Any) -> bytes | None:
        data: bytes | None = None if value is None else self._tuples.serialize((value,))
        return data

    def deserialize(self, data: bytes | None) -> Any:
        row = self._tuples.deserialize(data)
        return None if row is None else row[0]

    def encode(self, column: Column) -> pa.Array:
        return self._tuples.encode(RowColumn([column], len(column), column.null_mask()))

    def decode(self, data: pa.Array) -> Column:
        plain = _only(self._tuples.decode(data))
        return super().decode(data) if plain is None else plain
