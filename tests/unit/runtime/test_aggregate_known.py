"""Aggregations over columns of floats, of structs, several at once, and by expression, against the row loop."""

from __future__ import annotations

from functools import partial

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables_support import OneTask, function, node, rows_of, run_splits, store

from penstock.api.groups import agg
from penstock.runtime.aggregate import operators as aggregate
from penstock.runtime.fold.columns import KnownAggregation, recognise
from penstock.serde import Serdes
from penstock.topology.operations.definitions import Aggregation, StreamAggregate

AUTO = Serdes.auto()
KEYS = st.sampled_from(["a", "b", "c"])
SPLITS = st.lists(st.integers(0, 25), max_size=3)
FLOATS = st.floats(-1e6, 1e6) | st.sampled_from([0.0, -0.0, float("inf"), float("nan"), 0.1, 0.2, 0.3])
VALUES = {
    "floats": FLOATS | st.none(),
    "integers": st.integers(-50, 50) | st.none(),
    "structs of integers": st.fixed_dictionaries({"x": st.integers(-9, 9), "name": st.sampled_from(["u", "v"])}),
    "structs of floats": st.fixed_dictionaries({"x": FLOATS | st.none(), "name": st.sampled_from(["u", "v", None])}),
}
BUILT_IN = {
    **{f"{kind}()": getattr(agg, kind)() for kind in ("count", "sum", "min", "max", "first", "last", "mean")},
    "n_unique": agg.n_unique(),
    "top": agg.top(2),
}
OF_STRUCTS = {
    "sum": agg.sum("x"),
    "mean": agg.mean("x"),
    "several": agg.struct(n=agg.count(), total=agg.sum("x"), least=agg.min("x"), last=agg.last("name")),
    "nested": agg.struct(mean=agg.mean("x"), inner=agg.struct(top=agg.max("x"), first=agg.first("name"))),
}
CASES = [(values, name, fold) for values in ("floats", "integers") for name, fold in BUILT_IN.items()] + [
    (values, name, fold) for values in ("structs of integers", "structs of floats") for name, fold in OF_STRUCTS.items()
]


def task_of(aggregation, *, caching=False):
    operation = StreamAggregate(aggregation, "store", send_old=True)
    return OneTask(node("agg", operation), stores=(store(value=AUTO),), caching=caching)


def run(aggregation, records, splits, *, caching=False, columnar=True):
    out, task = run_splits(partial(task_of, aggregation, caching=caching), "agg", records, splits, columnar=columnar)
    return repr(out), repr(list(task.store("store").all()))  # repr tells -0.0 from 0.0, and nan is nan


@pytest.mark.parametrize(("values", "name", "built_in"), CASES, ids=[f"{v}-{n}" for v, n, _ in CASES])
@settings(max_examples=25, deadline=None)
@given(data=st.data(), splits=SPLITS, caching=st.booleans(), columnar=st.booleans())
def test_built_in_aggregators_by_column_give_what_they_give_by_row(
    values, name, built_in, data, splits, caching, columnar
):
    records = data.draw(st.lists(st.tuples(KEYS, VALUES[values], st.integers(0, 100)), max_size=25))
    by_row = Aggregation("aggregate", function(built_in.__call__, 3), initializer=lambda: None)
    by_column = Aggregation("aggregate", function(built_in, 3), initializer=lambda: None)
    assert recognise(by_row) is None
    assert (recognise(by_column) is None) == (name in {"n_unique", "top"})
    results = [run(fold, records, splits, caching=caching, columnar=columnar) for fold in (by_row, by_column)]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("values", "name"), [("floats", "sum()"), ("floats", "min()"), ("structs of floats", "several")]
)
def test_they_do_run_over_columns(monkeypatch, values, name):
    monkeypatch.setattr(aggregate, "FEW", 0)
    monkeypatch.setattr(aggregate, "fold_rows", lambda *a, **k: pytest.fail("went row by row"))
    fold = {**BUILT_IN, **OF_STRUCTS}[name]
    one, two = (1.5, 2.5) if values == "floats" else ({"x": 1.5, "name": "u"}, {"x": 2.5, "name": "v"})
    records = [("a", one, 1), ("b", two, 2), ("a", two, 3)]
    for caching in (False, True):
        run(Aggregation("aggregate", function(fold, 3)), records, [2], caching=caching)


SO_FAR, VALUE = pl.col("aggregate"), pl.col("value")
EXPRESSIONS = {
    "sum": (SO_FAR + VALUE, lambda a, b: a + b),
    "sum-turned": (VALUE + SO_FAR, lambda a, b: a + b),
    "min": (pl.min_horizontal(SO_FAR, VALUE), min),
    "max": (pl.max_horizontal(VALUE, SO_FAR), max),
    "last": (VALUE, lambda a, b: b),
}


@pytest.mark.parametrize("shape", EXPRESSIONS)
@settings(max_examples=25, deadline=None)
@given(
    records=st.lists(st.tuples(KEYS, st.integers(-50, 50), st.integers(0, 100)), max_size=25),
    splits=SPLITS,
    caching=st.booleans(),
)
def test_expressions_of_known_shapes_run_over_columns(shape, records, splits, caching):
    expression, fn = EXPRESSIONS[shape]
    by_expression = Aggregation("reduce", function(expression, 2))
    known = recognise(by_expression)
    assert known == KnownAggregation(shape.removesuffix("-turned"))
    results = [
        run(fold, records, splits, caching=caching) for fold in (by_expression, Aggregation("reduce", function(fn, 2)))
    ]
    assert results[0] == results[1]


def test_an_expression_over_a_field_starts_from_the_initializer():
    fold = Aggregation("aggregate", function(SO_FAR + pl.col("x"), 3), initializer=lambda: 100)
    assert recognise(fold) == KnownAggregation("sum", "x", 100)
    records = [("a", {"x": 1}, 1), ("a", {"x": 2}, 2)]
    task = task_of(fold)
    out = task.run("agg", rows_of(records))
    assert (out.values.items(), out.olds.items()) == ([101, 103], [100, 101])


@pytest.mark.parametrize(
    "expression", [SO_FAR - VALUE, SO_FAR + VALUE * 2, SO_FAR + pl.col("key"), SO_FAR, pl.col("x"), SO_FAR + pl.lit(1)]
)
def test_expressions_of_other_shapes_are_left_alone(expression):
    assert recognise(Aggregation("reduce", function(expression, 2))) is None
