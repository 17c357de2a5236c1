"""Every view against a plain model, over a map in memory."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from penstock.errors import StateError
from penstock.serde.column import Column
from penstock.serde.primitives import NumberSerde, StringSerde
from penstock.serde.windowed import Window, Windowed, WindowedColumn
from penstock.state.maps import MemoryTaskState
from penstock.state.views import ValueAndTimestamp, open_view
from penstock.topology.stores import StoreSpec

KEYS = st.text("ab\x00\xff", max_size=3)
VALUES = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
TIMES = st.integers(0, 2**40)


def view_of(kind, **options):
    spec = StoreSpec("store", kind, StringSerde(), NumberSerde("long"), **options)
    state = MemoryTaskState([spec])
    return open_view(spec, state.map("store"), state.meta)


def in_order(model):
    return [(key, model[key]) for key in sorted(model, key=str.encode)]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(KEYS, VALUES)), KEYS, KEYS)
def test_key_value_view_is_an_ordered_dict(writes, low, high):
    view, model = view_of("key_value"), {}
    for number, (key, value) in enumerate(writes):
        if number == len(writes) // 2:
            assert list(view.all()) == in_order(model)
        if number % 3 == 0:
            view.put(key, value)
        elif number % 3 == 1:
            view.put_many([(key, value)])
        else:
            view.put_columns(Column.of_items([key]), Column.of_series(pl.Series([value], dtype=pl.Int64)))
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value
    rows = in_order(model)
    assert list(view.all()) == rows
    assert list(view.reverse_all()) == rows[::-1]
    inside = [row for row in rows if low.encode() <= row[0].encode() <= high.encode()]
    assert list(view.range(low, high)) == inside
    assert list(view.reverse_range(low, high)) == inside[::-1]
    assert list(view.prefix_scan(low)) == [row for row in rows if row[0].encode().startswith(low.encode())]
    assert view.get_many([low, high]) == [model.get(low), model.get(high)]
    assert view.approximate_num_entries() == len(model)
    assert view.put_if_absent(low, 7) == model.get(low)
    assert view.get(low) == model.get(low, 7)
    assert view.delete(low) == model.get(low, 7)
    assert view.get(low) is None


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.tuples(KEYS, VALUES, TIMES), min_size=1, max_size=8), max_size=5))
def test_timestamped_view_by_row_and_by_column_agree(batches):
    rows, columns, model = view_of("timestamped"), view_of("timestamped"), {}
    for batch in batches:
        for key, value, time in batch:
            rows.put(key, value, time)
            if value is None:
                model.pop(key, None)
            else:
                model[key] = ValueAndTimestamp(value, time)
        columns.put_columns(
            Column.of_items([key for key, _, _ in batch]),
            Column.of_series(pl.Series([value for _, value, _ in batch], dtype=pl.Int64)),
            np.array([time for _, _, time in batch], np.int64),
        )
    assert list(rows.all()) == list(columns.all()) == in_order(model)
    asked = ["", "a", "b", "ab", "\xff"]
    values, times = columns.get_columns(Column.of_items(asked))
    assert values.items() == [model[key].value if key in model else None for key in asked]
    assert times.tolist() == [model[key].timestamp if key in model else -1 for key in asked]


def test_timestamped_value_has_kafkas_bytes():
    spec = StoreSpec("store", "timestamped", StringSerde(), NumberSerde("long"))
    state = MemoryTaskState([spec])
    open_view(spec, state.map("store"), state.meta).put("k", 1, 258)
    assert state.map("store").get(b"k") == b"\0\0\0\0\0\0\x01\x02" + b"\0\0\0\0\0\0\0\x01"


STARTS = st.integers(0, 40).map(lambda n: n * 10_000)


@pytest.mark.parametrize("persistent", [True, False])
@settings(max_examples=examples(80), deadline=None)
@given(data=st.data())
def test_window_view_against_a_model(data, persistent):
    retention, segment = 150_000, 75_000
    options = {"timestamped": True, "window_size_ms": 20_000, "retention_ms": retention, "persistent": persistent}
    rows, columns = view_of("window", **options), view_of("window", **options)
    model, observed, dropped = {}, -1, 0
    for batch in data.draw(st.lists(st.lists(st.tuples(KEYS, STARTS, VALUES), min_size=1, max_size=6), max_size=5)):
        for key, start, value in batch:
            observed = max(observed, start)
            rows.put(key, value, start, 5)
            limit = observed - retention
            live = start // segment >= limit // segment if persistent else start > limit
            dropped += not live
            if live and value is not None:
                model[key, start] = ValueAndTimestamp(value, 5)
            elif live:
                model.pop((key, start), None)
        columns.put_columns(
            WindowedColumn(
                Column.of_items([key for key, _, _ in batch]),
                np.array([start for _, start, _ in batch], np.int64),
                np.array([start + 20_000 for _, start, _ in batch], np.int64),
            ),
            None,
            Column.of_series(pl.Series([value for _, _, value in batch], dtype=pl.Int64)),
            np.full(len(batch), 5),
        )
    seen = {place: value for place, value in model.items() if place[1] > observed - retention}

    def place(window):
        key, start = window[0].encode(), window[1]
        return (start // segment, key + start.to_bytes(8, "big")) if persistent else (start, key)

    order = sorted(seen, key=place)
    expected = [(Windowed(key, Window(start, start + 20_000)), seen[key, start]) for key, start in order]
    low, high = sorted((data.draw(STARTS), data.draw(STARTS)))
    for view in (rows, columns):
        assert list(view.all()) == expected
        assert list(view.all(reverse=True)) == expected[::-1]
        assert list(view.fetch_all(low, high)) == [e for e in expected if low <= e[0].window.start <= high]
        for key in ("", "a", "ab"):
            mine = sorted((start, value) for (k, start), value in seen.items() if k == key and low <= start <= high)
            assert list(view.fetch_range(key, low, high)) == mine
            assert list(view.fetch_range(key, low, high, reverse=True)) == mine[::-1]
            assert view.fetch(key, low) == seen.get((key, low))
            values, times = view.get_columns(Column.of_items([key, key]), np.array([low, high]))
            assert values.items() == [seen[key, t].value if (key, t) in seen else None for t in (low, high)]
            assert times.tolist() == [5 if (key, t) in seen else -1 for t in (low, high)]
        assert view.observed_stream_time == observed
        assert view.take_dropped() == dropped
        assert view.take_dropped() == 0


def test_expired_windows_leave_the_map():
    spec = StoreSpec("w", "window", StringSerde(), NumberSerde("long"), window_size_ms=1000, retention_ms=60_000)
    state = MemoryTaskState([spec])
    view = open_view(spec, state.map("w"), state.meta)
    for start in range(0, 600_000, 1000):
        view.put("k", start, start)
    assert len(state.map("w")) <= 121
    again = open_view(spec, state.map("w"), state.meta)
    assert again.observed_stream_time == 599_000
    assert again.fetch("k", 539_000) is None
    assert again.fetch("k", 540_000) == 540_000


def test_duplicates_are_kept_in_the_order_of_their_puts():
    view = view_of("window", retain_duplicates=True, window_size_ms=10, retention_ms=100)
    view.put("k", 1, 5)
    view.put_columns(Column.of_items(["k", "k", "j"]), np.array([5, 6, 5]), Column.of_items([2, 3, 4]))
    view.put("k", None, 5)
    assert list(view.fetch_range("k", 0, 10)) == [(5, 1), (5, 2), (6, 3)]
    with pytest.raises(StateError, match="duplicates"):
        view.get_columns(Column.of_items(["k"]), np.array([5]))


@pytest.mark.parametrize("persistent", [True, False])
@settings(max_examples=examples(80), deadline=None)
@given(data=st.data())
def test_session_view_against_a_model(data, persistent):
    retention, segment = 150_000, 75_000
    view = view_of("session", retention_ms=retention, persistent=persistent)
    model, observed, dropped = {}, -1, 0
    sessions = st.tuples(KEYS, STARTS, st.integers(0, 50_000), VALUES, st.booleans())
    for key, start, length, value, removes in data.draw(st.lists(sessions, max_size=20)):
        session = Windowed(key, Window(start, start + length))
        if removes:
            view.remove(session)
            model.pop(session, None)
            continue
        view.put(session, value)
        observed = max(observed, start + length)
        limit = observed - retention
        live = (start + length) // segment >= limit // segment if persistent else start + length > limit
        dropped += not live
        if live and value is not None:
            model[session] = value
        elif live:
            model.pop(session, None)
    seen = {s: value for s, value in model.items() if s.window.end > observed - retention}
    unit = segment if persistent else 1

    def place(session):
        window = session.window
        return window.end // unit, session.key.encode() + window.end.to_bytes(8, "big") + window.start.to_bytes(
            8, "big"
        )

    order = sorted(seen, key=place)
    assert list(view.all()) == [(s, seen[s]) for s in order]
    assert list(view.fetch_key_range("a", "b", reverse=True)) == [
        (s, seen[s]) for s in order[::-1] if b"a" <= s.key.encode() <= b"b"
    ]
    earliest, latest = data.draw(STARTS), data.draw(STARTS)
    for key in ("", "a", "ab"):
        mine = sorted((s.window.end, s.window.start) for s in seen if s.key == key)
        mine = [Windowed(key, Window(start, end)) for end, start in mine]
        assert [s for s, _ in view.fetch(key)] == mine
        found = [(s, seen[s]) for s in mine if s.window.end >= earliest and s.window.start <= latest]
        assert list(view.find_sessions(key, earliest, latest)) == found
        assert list(view.find_sessions(key, earliest, latest, reverse=True)) == found[::-1]
        assert all(view.fetch_session(key, s.window.start, s.window.end) == seen[s] for s in mine)
        assert view.fetch_session(key, 7, 8) is None
    assert view.take_dropped() == dropped


def test_null_keys_and_unknown_stores_are_told():
    view = view_of("key_value")
    with pytest.raises(StateError, match="'store' is null"):
        view.get(None)
    with pytest.raises(StateError, match="'store' is null"):
        view.put_columns(Column.of_items(["a", None]), Column.of_items([1, 2]))
    with pytest.raises(StateError, match="Did you mean store"):
        MemoryTaskState([view.spec]).map("stor")
