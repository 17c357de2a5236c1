"""Work row by row on a few rows has the results of work by column."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import SessionWindows, StreamsBuilder, Suppressed, TimeWindows
from penstock.engines.threads.loop.commit import by_partition
from penstock.errors import SerializationError
from penstock.log import partitioner
from penstock.log.partitioner import partitions_for
from penstock.runtime.fold import columns as fold_columns
from penstock.runtime.fold.columns import group_windows
from penstock.runtime.suppress import operator as suppress_operator
from penstock.runtime.tables import StoredTable
from penstock.serde import base, primitives, windowed
from penstock.serde import column as columns
from penstock.serde.bound_serdes import OwnSerde
from penstock.serde.column import Column, nulls_of, to_bytes_list
from penstock.serde.json_serde import StructSerde
from penstock.serde.primitives import StringSerde
from penstock.serde.windowed import SessionWindowedSerde, TimeWindowedSerde, Window, Windowed, WindowedColumn
from penstock.state.maps import MemoryTaskState
from penstock.state.views import keyvalue, open_view, session, window
from penstock.state.views.keyvalue import decode_stamped, encode_stamped, frame, unframe
from penstock.testing import TopologyTestDriver
from penstock.topology.stores import StoreSpec

keys = st.lists(st.none() | st.binary(max_size=40), max_size=30)


@pytest.fixture(scope="module")
def by_column() -> Any:
    """Calls a function as if no rows were few."""

    def call(function: Any, *arguments: Any) -> Any:
        limits = [(module, "_FEW") for module in (columns, partitioner, keyvalue, fold_columns)]
        limits += [(module, "FEW") for module in (base, keyvalue, session, window, windowed)]
        limits += [(columns, "_FEW_BYTES"), (primitives, "_FEW_TEXTS")]
        before = [getattr(module, name) for module, name in limits]
        for module, name in limits:
            setattr(module, name, -1)
        try:
            return function(*arguments)
        finally:
            for (module, name), few in zip(limits, before, strict=True):
                setattr(module, name, few)

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


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.text(max_size=5).map(str.encode) | st.binary(max_size=3), max_size=30))
def test_bytes_of_texts(by_column: Any, rows: list[bytes | None]) -> None:
    def outcome(call: Any) -> Any:
        try:
            return call(StringSerde().decode, pa.array(rows, pa.large_binary())).items()
        except SerializationError as error:
            return type(error), str(error)

    assert outcome(lambda function, *arguments: function(*arguments)) == outcome(by_column)


class _Whole:
    """A serde of a user's own that writes whole columns."""

    name = "whole"

    def serialize(self, value: Any) -> bytes | None:
        raise AssertionError("the column is written at once")

    def deserialize(self, data: bytes | None) -> Any:
        return data

    def encode(self, column: Column) -> pa.Array:
        return pa.array([b"%d" % item for item in column.items()], pa.large_binary())


def test_serdes_that_write_columns_faster_do_so_for_rowwise_too() -> None:
    assert base.encode_rows(OwnSerde(_Whole()), Column.of_items([1, 2])) == [b"1", b"2"]
    structs = Column.of_series(pl.Series("", [{"day": date(2020, 1, 1)}, None, {"day": None}]))
    serde = StructSerde({"day": int})
    for each, column in ((serde, structs), (TimeWindowedSerde(serde, 5), _windowed(structs))):
        assert base.encode_rows(each, column) == each.encode(column).to_pylist()


def _windowed(keys: Column) -> WindowedColumn:
    starts = np.arange(len(keys)) * 5
    return WindowedColumn(keys, starts, starts + 5)


WINDOWS = st.tuples(st.integers(0, 10**13), st.integers(0, 10**6)).map(lambda pair: Window(pair[0], sum(pair)))
SERDES = st.sampled_from([TimeWindowedSerde(StringSerde(), 500), SessionWindowedSerde(StringSerde())])


@settings(max_examples=200, deadline=None)
@given(SERDES, st.lists(st.none() | st.tuples(st.text(max_size=5), WINDOWS), max_size=30))
def test_windowed_keys(by_column: Any, serde: Any, rows: list[tuple[str, Window] | None]) -> None:
    column = WindowedColumn.of(Column.of_items([None if row is None else Windowed(*row) for row in rows]))
    few, many = serde.encode(column), by_column(serde.encode, column)
    assert few.equals(many)
    assert serde.decode(few).items() == by_column(serde.decode, few).items()
    assert base.encode_rows(serde, column) == few.to_pylist()
    assert base.decode_rows(serde, few.to_pylist()).items() == serde.decode(few).items()


@settings(max_examples=100, deadline=None)
@given(SERDES, st.lists(st.none() | st.binary(max_size=20), max_size=12))
def test_bytes_that_are_no_windowed_keys(by_column: Any, serde: Any, rows: list[bytes | None]) -> None:
    def outcome(call: Any) -> Any:
        try:
            return call(serde.decode, pa.array(rows, pa.large_binary())).items()
        except SerializationError as error:
            return type(error), str(error)

    assert outcome(lambda function, *arguments: function(*arguments)) == outcome(by_column)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.none() | st.text(max_size=5), st.integers(0, 10**13)), max_size=30))
def test_values_with_timestamps(by_column: Any, rows: list[tuple[str | None, int]]) -> None:
    values, stamps = Column.of_items([value for value, _ in rows]), np.array([stamp for _, stamp in rows], np.int64)
    few, many = encode_stamped(StringSerde(), values, stamps), by_column(encode_stamped, StringSerde(), values, stamps)
    assert few == many
    for decoded, times in (decode_stamped(StringSerde(), few), by_column(decode_stamped, StringSerde(), few)):
        assert decoded.items() == values.items()
        assert times.tolist() == [-1 if value is None else stamp for value, stamp in rows]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30))
def test_groups_of_windows(by_column: Any, rows: list[tuple[int, int, int]]) -> None:
    codes, starts, lengths = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    for ends in (None, starts + lengths):
        few, many = group_windows(codes, starts, ends), by_column(group_windows, codes, starts, ends)
        assert few.codes.tolist() == many.codes.tolist()
        assert few.first.tolist() == many.first.tolist()
        assert few.last_rows().tolist() == many.last_rows().tolist()


PUTS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.text(max_size=3), st.integers(0, 99)), max_size=30)
STORES = st.sampled_from(["timestamped", "window", "duplicates", "session"])


@settings(max_examples=200, deadline=None)
@given(STORES, st.booleans(), st.booleans(), st.lists(PUTS, min_size=1, max_size=3))
def test_stores(by_column: Any, kind: str, keeps_headers: bool, persistent: bool, batches: list[Any]) -> None:
    few = _kept(lambda function, *arguments: function(*arguments), kind, keeps_headers, persistent, batches)
    assert few == _kept(by_column, kind, keeps_headers, persistent, batches)


def _kept(call: Any, kind: str, keeps_headers: bool, persistent: bool, batches: list[Any]) -> Any:
    """Return all that a store reads while batches are put, and its bytes and notes in the end."""
    duplicates = kind == "duplicates"
    times = {"timestamped": {}, "session": {"retention_ms": 40}}
    options = times.get(kind, {"retention_ms": 40, "window_size_ms": 10, "retain_duplicates": duplicates})
    options |= {"keeps_headers": keeps_headers, "persistent": persistent, "timestamped": kind != "session"}
    spec = StoreSpec("store", "window" if duplicates else kind, StringSerde(), StringSerde(), **options)  # type: ignore[arg-type]
    state = MemoryTaskState([spec])
    view: Any = open_view(spec, state.map("store"), state.meta)
    reads: list[Any] = []
    for batch in batches:
        keys, values = Column.of_items([row[0] for row in batch]), Column.of_items([row[1] for row in batch])
        stamps = np.array([row[2] for row in batch], np.int64)
        if kind == "timestamped":
            call(view.put_columns, keys, values, stamps)
            found, times_of = call(view.get_columns, keys)
        elif kind == "session":
            windowed = WindowedColumn(keys, stamps // 2, stamps)
            call(view.put_columns, windowed, values)
            found, times_of = call(view.get_columns, windowed)
            many = call(view.find_many, keys, stamps - 20, stamps)
            reads.append([each.tolist() if isinstance(each, np.ndarray) else each.items() for each in many])
        else:
            reads.append(call(view.put_columns, keys, stamps // 10 * 10, values, stamps))
            many = call(view.fetch_many, keys, stamps - 20, stamps)
            reads.append([each.tolist() if isinstance(each, np.ndarray) else each.items() for each in many])
            if duplicates:
                continue
            found, times_of = call(view.get_columns, keys, stamps // 10 * 10)
        reads.append((found.items(), times_of.tolist()))
    return (
        reads,
        list(state.map("store").scan()),
        dict(state.meta),
        view.take_dropped() if options.get("retention_ms") else 0,
    )


def _counts(lines: Any) -> Any:
    return lines.group_by_key().count()


def _last_texts(lines: Any) -> Any:
    return lines.group_by_key().aggregate(lambda: "", lambda _key, value, texts: (texts + value)[-9:])


def _filtered(lines: Any) -> Any:
    return lines.group_by_key().count().filter(lambda _, number: number % 3 != 1)


def _reduced_windows(lines: Any) -> Any:
    windows = lines.group_by_key().windowed_by(TimeWindows.of("5s", grace="2s"))
    return windows.reduce(lambda old, new: old if len(old) > 3 else f"{old}{new}")


def _counted_windows(lines: Any) -> Any:
    return lines.group_by_key().windowed_by(TimeWindows.of("5s", grace="2s")).count()


def _sessions(lines: Any) -> Any:
    sessions = lines.group_by_key().windowed_by(SessionWindows.of("3s", grace="2s"))
    return sessions.aggregate(
        lambda: "", lambda _key, value, texts: f"{texts}{value}"[-5:], lambda _key, one, two: (one + two)[-5:]
    )


def _closed_sessions(lines: Any) -> Any:
    sessions = lines.group_by_key().windowed_by(SessionWindows.of("3s", grace="2s")).count()
    return sessions.suppress(Suppressed.until_window_closes())


def _late_sessions(lines: Any) -> Any:
    sessions = lines.group_by_key().windowed_by(SessionWindows.of("3s", grace="2s")).count()
    return sessions.suppress(Suppressed.until_time_limit("4s"))


_AGGREGATES = [
    *(_counts, _last_texts, _filtered, _counted_windows, _reduced_windows),
    *(_sessions, _closed_sessions, _late_sessions),
]
_TEXTS = {"default.key.serde": "string", "default.value.serde": "string"}
_records = st.tuples(
    st.sampled_from(["a", "b", "ab", None]), st.sampled_from(["x", "yy", None]), st.integers(0, 40_000)
)


def _results(aggregate: Any, cache_bytes: int, records: list[Any], *, by_entry: bool) -> Any:
    """Return what an application writes and keeps, with aggregations entry by entry, or by the general way."""
    builder = StreamsBuilder()
    written: list[Any] = []
    changes = aggregate(builder.stream("in"))
    changes.to_stream().foreach(lambda key, value: written.append((key, value)))
    changes.to_stream().map(lambda key, value: (str(key), str(value))).to("out")
    config = {**_TEXTS, "statestore.cache.max.bytes": cache_bytes}
    with pytest.MonkeyPatch.context() as patch:
        if not by_entry:
            patch.setattr(StoredTable, "__setattr__", _without_entries, raising=False)
            patch.setattr(suppress_operator, "_FEW", 0)
        with TopologyTestDriver(builder.build(), config) as driver:
            for key, value, timestamp in records:
                driver.input_topic("in").pipe(value, key, timestamp)
            out = driver.output_topic("out").read_records_to_list()
            kept = {name: list(driver.get_state_store(name)._map.scan()) for name in driver.topology.stores}
            return written, out, kept, driver.dropped_records


def _without_entries(table: Any, name: str, value: Any) -> None:
    object.__setattr__(table, name, False if name == "takes_entries" else value)


@pytest.mark.parametrize("cache_bytes", [0, 10_000_000])
@pytest.mark.parametrize("aggregate", _AGGREGATES)
@settings(max_examples=15, deadline=None)
@given(records=st.lists(_records, max_size=25))
def test_aggregates(aggregate: Any, cache_bytes: int, records: list[Any]) -> None:
    few = _results(aggregate, cache_bytes, records, by_entry=True)
    assert few == _results(aggregate, cache_bytes, records, by_entry=False)
