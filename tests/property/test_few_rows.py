"""Work row by row on a few rows has the results of work by column."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engines.threads.outputs import by_partition
from penstock.errors import SerializationError
from penstock.serde import buffers, partitioner, text
from penstock.serde.buffers import nulls_of
from penstock.serde.column import Column
from penstock.serde.partitioner import partitions_for
from penstock.serde.text import StringSerde
from penstock.state.views import frames
from penstock.state.views.frames import frame, to_bytes_list, unframe

keys = st.lists(st.none() | st.binary(max_size=40), max_size=30)


@pytest.fixture(scope="module")
def by_column() -> Any:
    """Calls a function as if no rows were few."""

    def call(function: Any, *arguments: Any) -> Any:
        modules = (buffers, partitioner, text, frames)
        before = [module._FEW for module in modules]
        for module in modules:
            module._FEW = -1
        try:
            return function(*arguments)
        finally:
            for module, few in zip(modules, before, strict=True):
                module._FEW = few

    return call


@settings(max_examples=200, deadline=None)
@given(keys, st.integers(1, 300))
def test_partitions(by_column: Any, found: list[bytes | None], partitions: int) -> None:
    column = pa.array(found, pa.large_binary())
    few, many = partitions_for(column, partitions), by_column(partitions_for, column, partitions)
    assert few.dtype == many.dtype == np.int32
    assert few.tolist() == many.tolist()


@settings(max_examples=100, deadline=None)
@given(keys, st.sampled_from([pa.large_binary(), pa.binary()]))
def test_bytes(by_column: Any, found: list[bytes | None], kind: pa.DataType) -> None:
    column = pa.array(found, kind)
    assert to_bytes_list(column) == by_column(to_bytes_list, column) == found


@settings(max_examples=200, deadline=None)
@given(keys, st.integers(0, 9), st.integers(0, 9), st.booleans())
def test_frames(by_column: Any, found: list[bytes | None], before: int, after: int, cut: bool) -> None:
    column = pa.array([b"", None, *found], pa.large_binary()).slice(2)
    prefix, suffix = (
        np.arange(len(found) * width, dtype=np.uint8).reshape(len(found), width) for width in (before, after)
    )

    def outcome(call: Any) -> Any:
        framed = call(frame, column, prefix, suffix)
        try:
            core, heads, tails = call(unframe, column if cut else framed, before, after)
        except ValueError as error:
            return framed, str(error)
        return framed, core, heads.tolist(), tails.tolist()

    few, many = outcome(lambda function, *arguments: function(*arguments)), outcome(by_column)
    assert few == many
    assert cut or few[1].equals(column)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.integers(0, 9), max_size=30), st.sampled_from([pl.Int64, pl.Float64, pl.String]))
def test_nulls(by_column: Any, found: list[int | None], kind: Any) -> None:
    series = pl.Series("", found, pl.Int64).cast(kind)
    few, many = nulls_of(series), by_column(nulls_of, series)
    assert few.tolist() == many.tolist() == [each is None for each in found]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.none() | st.text(st.characters(), max_size=10), max_size=30))
def test_texts(by_column: Any, found: list[str | None]) -> None:
    serde = StringSerde()

    def outcome(call: Any) -> Any:
        try:
            return call(serde.encode, Column.of_items(found))
        except SerializationError as error:
            return type(error), str(error)

    few, many = outcome(lambda function, *arguments: function(*arguments)), outcome(by_column)
    assert few == many if isinstance(few, tuple) else few.equals(many)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 99)), max_size=12))
def test_rows_by_partition(rows: list[tuple[int, int]]) -> None:
    partitions, values = [row[0] for row in rows], [row[1] for row in rows]
    columns = {"partition": pa.array(partitions, pa.int32()), "value": pa.array(values, pa.int64())}
    found = {partition: part.to_pydict() for partition, part in by_partition(pa.RecordBatch.from_pydict(columns))}
    wanted = {each: {"value": [v for p, v in rows if p == each]} for each in sorted(set(partitions))}
    assert found == wanted
    assert list(found) == list(wanted)
