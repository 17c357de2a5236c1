from __future__ import annotations

import itertools

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables_support import LONG, STRING, OneTask, function, node, plain, rows_of, run_splits, store

from penstock.serde.column import Column
from penstock.topology.operations.definitions import (
    StreamToTable,
    TableFilter,
    TableMapValues,
    TableRegroup,
    TableSource,
    TableToStream,
)

KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.integers(-9, 9) | st.none()
RECORDS = st.lists(st.tuples(KEYS | st.none(), VALUES, st.integers(0, 100)), max_size=25)
CHANGES = st.lists(st.tuples(KEYS, VALUES, st.integers(0, 100), VALUES), max_size=25)
SPLITS = st.lists(st.integers(0, 25), max_size=3)


@pytest.mark.parametrize("operation", [TableSource, StreamToTable])
@settings(max_examples=40, deadline=None)
@given(records=RECORDS, splits=SPLITS, send_old=st.booleans())
def test_a_source_forwards_every_record(operation, records, splits, send_old):
    def make():
        return OneTask(node("table", operation("store", send_old=send_old)), stores=(store(),))

    out, task = run_splits(make, "table", records, splits)
    state, expected = {}, []
    for position, (key, value, time) in enumerate(records):
        if key is not None:
            expected.append((position, key, value, state.get(key, (None,))[0] if send_old else None, time))
            state[key] = (value, time)
    assert out == expected
    assert dict(task.store("store").all()) == {k: v for k, v in state.items() if v[0] is not None}
    assert task.dropped == sum(k is None for k, _, _ in records)


@settings(max_examples=40, deadline=None)
@given(records=RECORDS, splits=SPLITS, send_old=st.booleans())
def test_a_cached_source_forwards_the_last_record_of_each_key(records, splits, send_old):
    def make():
        return OneTask(node("table", TableSource("store", send_old=send_old)), stores=(store(),), caching=True)

    out, _ = run_splits(make, "table", records, splits)
    bounds = [0, *sorted(set(splits)), max(25, len(records))]
    state, expected = {}, []
    for start, stop in itertools.pairwise(bounds):
        last = {}
        for position, (key, value, time) in list(enumerate(records))[start:stop]:
            if key is not None:
                last.pop(key, None)
                last[key] = (position, value, time)
        for key, (position, value, time) in last.items():
            old = state.get(key)
            if value is not None or old is not None:
                expected.append((position, key, value, old if send_old else None, time))
            state[key] = value
    assert out == expected


def test_a_source_that_nobody_reads_keeps_nothing():
    task = OneTask(node("table", TableSource(None), stores=()))
    assert plain(task.run("table", rows_of([("a", 1, 5), (None, 2, 6)]))) == [(0, "a", 1, None, 5)]
    assert task.dropped == 1


PREDICATES = {
    "function": function(lambda value: value > 0, 1),
    "with key": function(lambda key, value: value > 0, 2),
    "expression": function(pl.col("value") > 0, 2),
}


@pytest.mark.parametrize("kind", PREDICATES)
@pytest.mark.parametrize("send_old", [True, False])
@settings(max_examples=25, deadline=None)
@given(records=CHANGES, splits=SPLITS, negate=st.booleans())
def test_a_filter_without_a_store(kind, send_old, records, splits, negate):
    operation = TableFilter(PREDICATES[kind], "source", negate=negate, send_old=send_old)
    out, _ = run_splits(lambda: OneTask(node("filter", operation)), "filter", records, splits, columnar=False)

    def keep(v):
        return v if v is not None and (v > 0) != negate else None

    expected = []
    for position, (key, incoming, time, outgoing) in enumerate(records):
        new, old = keep(incoming), keep(outgoing) if send_old else None
        if not send_old or new is not None or old is not None:
            expected.append((position, key, new, old, time))
    assert out == expected


@settings(max_examples=40, deadline=None)
@given(records=CHANGES, splits=SPLITS, send_old=st.booleans(), caching=st.booleans())
def test_a_filter_with_a_store_takes_old_values_from_it(records, splits, send_old, caching):
    operation = TableFilter(PREDICATES["function"], "source", "store", send_old=send_old)

    def make():
        return OneTask(node("filter", operation), stores=(store(),), caching=caching)

    out, task = run_splits(make, "filter", records, splits, columnar=False)
    state, expected = {}, []
    for position, (key, value, time, _) in enumerate(records):
        new = value if value is not None and value > 0 else None
        old = state.get(key)
        if not (send_old and new is None and old is None):
            expected.append((position, key, new, old if send_old else None, time))
        state[key] = new
    if not caching:
        assert out == expected
    assert {k: v.value for k, v in task.store("store").all()} == {k: v for k, v in state.items() if v is not None}


def test_a_filter_that_raises_costs_only_its_row():
    def picky(value):
        return 1 // value > 0

    task = OneTask(node("filter", TableFilter(function(picky, 1), "source")), on_failure="continue")
    rows = rows_of([("a", 1, 1, None), ("b", 0, 2, None), ("c", None, 3, None), ("d", 1, 4, None)], columnar=False)
    assert [row[:3] for row in plain(task.run("filter", rows))] == [(0, "a", 1), (2, "c", None), (3, "d", 1)]
    assert task.failures == [("filter", 1, ZeroDivisionError)]


@settings(max_examples=40, deadline=None)
@given(records=CHANGES, splits=SPLITS, stored=st.booleans())
def test_map_values_leaves_nulls_alone(records, splits, stored):
    operation = TableMapValues(function(lambda v: f"<{v}>", 1), "source", "store" if stored else None, send_old=True)

    def make():
        return OneTask(node("map", operation), stores=(store(value=STRING),))

    out, _ = run_splits(make, "map", records, splits, columnar=False)

    def text(v):
        return None if v is None else f"<{v}>"

    state, expected = {}, []
    for position, (key, new, time, old) in enumerate(records):
        expected.append((position, key, text(new), state.get(key) if stored else text(old), time))
        state[key] = text(new)
    assert out == expected


def test_a_stream_of_a_table_has_the_new_values():
    task = OneTask(node("stream", TableToStream()))
    rows = task.run("stream", rows_of([("a", 1, 1, 2), ("a", None, 2, 1)]))
    assert rows.olds is None
    assert rows.values.items() == [1, None]


def test_regrouping_takes_out_of_one_group_and_adds_to_another():
    pairs = function(lambda key, value: (None if value == 0 else "even" if value % 2 == 0 else "odd", value), 2)
    task = OneTask(node("regroup", TableRegroup(pairs, "source")))
    records = [("a", 1, 1, None), ("a", 2, 2, 1), ("a", 4, 3, 2), ("a", None, 4, 4), ("a", 0, 5, None)]
    rows = task.run("regroup", rows_of(records, columnar=False))
    assert plain(rows) == [
        (0, "odd", 1, None, 1),
        (1, "odd", None, 1, 2),
        (1, "even", 2, None, 2),
        (2, "even", 4, 2, 3),
        (3, "even", None, 4, 4),
    ]
    assert rows.place.order().tolist() == [0, 1, 2, 3, 4]


def test_a_grouping_function_that_gives_no_pair_fails_by_itself():
    task = OneTask(node("regroup", TableRegroup(function(lambda k, v: 5, 2), "source")), on_failure="continue")
    assert len(task.run("regroup", rows_of([("a", 1, 1, None)]))) == 0
    assert task.failures == [("regroup", 0, TypeError)]


def test_a_value_that_is_put_with_an_older_time_still_wins():
    task = OneTask(node("table", TableSource("store")), stores=(store(),))
    task.run("table", rows_of([("a", 1, 50), ("a", 2, 10)]))
    values, stamps = task.store("store").get_columns(Column.of_items(["a"]))
    assert (values.items(), stamps.tolist()) == ([2], [10])
    assert task.store("store").spec.value_serde == LONG
