from __future__ import annotations

import itertools
import operator
from functools import partial

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables_support import LONG, STRING, OneTask, function, node, plain, rows_of, run_splits, store

from examples import examples
from penstock.api.groups import agg
from penstock.runtime.aggregate import operators as aggregate
from penstock.runtime.fold.columns import group_keys, recognise
from penstock.runtime.tables import read_store
from penstock.serde.column import Column
from penstock.serde.primitives import ListSerde
from penstock.topology.operations.definitions import Aggregation, StreamAggregate, TableAggregate

COUNT = Aggregation("count")
KEYS = st.sampled_from(["a", "b", "c"])
RECORDS = st.lists(st.tuples(KEYS | st.none(), st.integers(-50, 50) | st.none(), st.integers(0, 100)), max_size=25)
SPLITS = st.lists(st.integers(0, 25), max_size=3)
FOLDS = {
    "count": COUNT,
    "sum": Aggregation("reduce", function(operator.add, 2)),
    "sum-lambda": Aggregation("reduce", function(lambda x, y: x + y, 2)),
    "min": Aggregation("reduce", function(min, 2)),
    "max": Aggregation("reduce", function(max, 2)),
    "first": Aggregation("reduce", function(lambda a, b: a, 2)),
    "last": Aggregation("reduce", function(lambda a, b: b, 2)),
    "null-at": Aggregation("reduce", function(lambda a, b: None if b % 3 == 0 else a + b, 2)),
    "aggregate": Aggregation("aggregate", function(lambda k, v, a: a * 3 + v - len(k), 3), initializer=lambda: 7),
    "expression": Aggregation("reduce", function(pl.col("aggregate") * 2 - pl.col("value"), 2)),
}


def reference(fold, records, *, send_old):
    """Kafka's KStreamAggregate and KStreamReduce, a record at a time."""
    state, out = {}, []
    step = {
        "count": lambda k, v, a: a + 1,
        "sum": lambda k, v, a: a + v,
        "sum-lambda": lambda k, v, a: a + v,
        "min": lambda k, v, a: min(a, v),
        "max": lambda k, v, a: max(a, v),
        "first": lambda k, v, a: a,
        "last": lambda k, v, a: v,
        "null-at": lambda k, v, a: None if v % 3 == 0 else a + v,
        "aggregate": lambda k, v, a: a * 3 + v - len(k),
        "expression": lambda k, v, a: a * 2 - v,
    }[fold]
    start = {"count": 0, "aggregate": 7}.get(fold)
    for position, (key, value, time) in enumerate(records):
        if key is None or value is None:
            continue
        old, stamp = state.get(key, (None, -1))
        if old is None:
            old, stamp = start, -1
        new = value if old is None else step(key, value, old)
        stamp = max(stamp, time)
        if new is None:
            state.pop(key, None)
        else:
            state[key] = (new, stamp)
        out.append((position, key, new, old if send_old else None, stamp))
    return out, state


def make(fold, *, caching=False, send_old=True):
    operation = StreamAggregate(FOLDS[fold], "store", send_old=send_old)
    return lambda: OneTask(node("agg", operation), stores=(store(),), caching=caching)


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("columnar", [True, False])
@settings(max_examples=examples(40), deadline=None)
@given(records=RECORDS, splits=SPLITS, send_old=st.booleans())
def test_every_way_of_aggregating_gives_what_kafka_gives(fold, columnar, records, splits, send_old):
    out, task = run_splits(make(fold, send_old=send_old), "agg", records, splits, columnar=columnar)
    expected, state = reference(fold, records, send_old=send_old)
    assert out == expected
    assert dict(task.store("store").all()) == state
    assert task.dropped == sum(k is None or v is None for k, v, _ in records)


@pytest.mark.parametrize("fold", FOLDS)
@settings(max_examples=examples(40), deadline=None)
@given(records=RECORDS, splits=SPLITS)
def test_with_caching_each_key_gives_its_last_change_per_batch(fold, records, splits):
    out, task = run_splits(make(fold, caching=True), "agg", records, splits)
    rows, state = reference(fold, records, send_old=True)
    bounds = [0, *sorted(set(splits)), max(25, len(records))]
    expected = []
    known = {}
    for start, stop in itertools.pairwise(bounds):
        last = {}
        for row in rows:
            if start <= row[0] < stop:
                last.pop(row[1], None)
                last[row[1]] = row
        for key, (position, _, new, _, stamp) in last.items():
            old = known.get(key)
            if new is not None or old is not None:
                expected.append((position, key, new, old, records[position][2] if new is None else stamp))
            known[key] = new
    assert out == expected
    assert dict(task.store("store").all()) == state


def test_what_is_recognised_runs_over_columns(monkeypatch):
    monkeypatch.setattr(aggregate, "FEW", 0)
    monkeypatch.setattr(aggregate, "fold_rows", lambda *a, **k: pytest.fail("went row by row"))
    for fold in ("count", "sum", "sum-lambda", "min", "max", "first", "last"):
        out, _ = run_splits(make(fold), "agg", [("a", 1, 5), ("b", 2, 4), ("a", 3, 3)], [])
        assert out == reference(fold, [("a", 1, 5), ("b", 2, 4), ("a", 3, 3)], send_old=True)[0]


def test_lambdas_that_only_look_alike_are_not_recognised():
    factor = 2
    for fn in (lambda a, b: b + a, lambda a, b: a + b * factor, lambda a, b=1: a + b, lambda a, b: a - b):
        assert recognise(Aggregation("reduce", function(fn, 2))) is None


def test_numbers_that_grow_beyond_a_long_are_not_wrapped():
    task = make("sum")()
    big = (1 << 62) + 1
    with pytest.raises(Exception, match=r".+"):  # the long serde refuses the sum
        task.run("agg", rows_of([("a", big, 1), ("a", big, 2)]))


def test_an_aggregate_changed_in_place_does_not_change_what_was_sent():
    def append(key, value, aggregate):
        aggregate.append(value)
        return aggregate

    operation = StreamAggregate(Aggregation("aggregate", function(append, 3), initializer=list), "store", send_old=True)
    task = OneTask(node("agg", operation), stores=(store(value=ListSerde(LONG)),))
    out = plain(task.run("agg", rows_of([("a", 1, 1), ("a", 2, 2), ("a", 3, 3)])))
    assert [(new, old) for _, _, new, old, _ in out] == [([1], []), ([1, 2], [1]), ([1, 2, 3], [1, 2])]


def test_a_function_that_raises_costs_only_its_row():
    def picky(a, b):
        if b == 13:
            raise ValueError("unlucky")
        return a + b

    def task():
        operation = StreamAggregate(Aggregation("reduce", function(picky, 2)), "store", send_old=True)
        return OneTask(node("agg", operation), stores=(store(),), on_failure="continue")

    records = [("a", 1, 1), ("a", 13, 2), ("a", 3, 3)]
    out, done = run_splits(task, "agg", records, [])
    assert out == [(0, "a", 1, None, 1), (2, "a", 4, 1, 3)]
    assert done.failures == [("agg", 1, ValueError)]


CHANGES = st.lists(
    st.tuples(KEYS, st.integers(1, 9) | st.none(), st.integers(0, 100), st.integers(1, 9) | st.none()).filter(
        lambda r: r[1] is not None or r[3] is not None
    ),
    max_size=25,
)


@settings(max_examples=examples(40), deadline=None)
@given(records=CHANGES, splits=SPLITS)
def test_a_grouped_table_takes_old_values_out_and_new_ones_in(records, splits):
    fold = Aggregation(
        "aggregate",
        function(lambda k, v, a: f"{a}+{v}", 3),
        initializer=lambda: "",
        subtractor=function(lambda k, v, a: f"{a}-{v}", 3),
    )

    def make_task():
        return OneTask(node("agg", TableAggregate(fold, "store", send_old=True)), stores=(store(value=STRING),))

    out, task = run_splits(make_task, "agg", records, splits)
    state, expected = {}, []
    for position, (key, new, time, old) in enumerate(records):
        before, stamp = state.get(key, (None, None))
        value, result_stamp = before, time
        if old is not None and before is not None:
            value, result_stamp = f"{value}-{old}", max(time, stamp)
        if new is not None:
            value = f"{value or ''}+{new}"
            result_stamp = time if before is None else max(time, stamp)
        if value is not None:
            state[key] = (value, result_stamp)
        expected.append((position, key, value, before, result_stamp))
    assert out == expected
    assert dict(task.store("store").all()) == state


def test_counting_a_grouped_table():
    task = OneTask(node("agg", TableAggregate(COUNT, "store")), stores=(store(),))
    task.run("agg", rows_of([("a", 1, 1, None), ("a", 2, 2, None), ("a", None, 3, 1), ("b", None, 4, 1)]))
    values, stamps = read_store(task.store("store"), Column.of_items(["a", "b"]))
    assert (values.items(), stamps.tolist()) == ([1, None], [3, -1])
    assert task.store("store").spec.value_serde == LONG


def make_one(operation, *, caching):
    return OneTask(node("agg", operation), stores=(store(),), caching=caching)


@pytest.mark.parametrize("kind", ["count", "sum", "min", "max", "first", "last"])
@pytest.mark.parametrize("caching", [True, False])
@settings(max_examples=examples(25), deadline=None)
@given(records=RECORDS, splits=SPLITS, columnar=st.booleans())
def test_built_in_aggregators_do_by_column_what_they_do_by_row(kind, caching, records, splits, columnar):
    built_in = getattr(agg, kind)()
    by_row = Aggregation("aggregate", function(built_in.__call__, 3), initializer=lambda: None)
    by_column = Aggregation("aggregate", function(built_in, 3), initializer=lambda: None)
    assert recognise(by_row) is None
    assert recognise(by_column) is not None
    results = []
    for fold in (by_row, by_column):
        operation = StreamAggregate(fold, "store", send_old=True)
        make_task = partial(make_one, operation, caching=caching)
        out, task = run_splits(make_task, "agg", records, splits, columnar=columnar)
        results.append((out, dict(task.store("store").all())))
    assert results[0] == results[1]


def test_built_in_aggregators_take_a_field_of_a_dict():
    fold = Aggregation("aggregate", function(agg.sum("amount"), 3))
    for columnar in (True, False):
        task = OneTask(node("agg", StreamAggregate(fold, "store")), stores=(store(),))
        records = [("a", {"amount": 1}, 1), ("a", {"amount": 5}, 2), ("b", {"amount": None}, 3)]
        out = plain(task.run("agg", rows_of(records, columnar=columnar)))
        assert [row[2] for row in out] == [1, 6, None]


@given(st.lists(st.sampled_from("abcdefgh"), max_size=64))
def test_a_few_keys_are_grouped_as_many_are(keys: list[str]) -> None:
    few = group_keys(Column.of_items(list(keys)), STRING)
    many = group_keys(Column.of_items([*keys, *("z" * 65)]), STRING)
    assert few.codes.tolist() == many.codes[: len(keys)].tolist()
    assert few.first.tolist() == many.first[:-1].tolist()
