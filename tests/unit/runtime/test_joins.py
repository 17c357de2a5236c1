from __future__ import annotations

import itertools

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables_support import OneTask, function, node, plain, rows_of, store

from penstock.runtime.rows import Rows
from penstock.topology.operations.definitions import (
    Aggregation,
    StreamAggregate,
    StreamTableJoin,
    TableFilter,
    TableMapValues,
    TableSource,
)

KEYS = st.sampled_from(["a", "b"])
EVENTS = st.lists(
    st.tuples(st.sampled_from(["table", "stream"]), KEYS | st.none(), st.integers(-5, 5) | st.none()), max_size=25
)
SPLITS = st.lists(st.integers(0, 25), max_size=3)
PAIR = function(lambda left, right: f"{left}/{right}", 2)


def task(*, left, table="table", extra=(), caching=False):
    return OneTask(
        node("table", TableSource("store")),
        *extra,
        node("join", StreamTableJoin(table, PAIR, left=left), stores=()),
        stores=(store(),),
        caching=caching,
    )


def run(one, events, splits, chain=("table",)):
    """Feeds both sides of each batch, the table first, as the order of the nodes has it."""
    out, bounds = [], [0, *sorted(set(splits)), max(25, len(events))]
    for start, stop in itertools.pairwise(bounds):
        one.batch += 1
        picked = [(i, e) for i, e in enumerate(events)][start:stop]
        sides = {}
        for side in ("table", "stream"):
            rows = [rows_of([(key, value, i)], first=i, columnar=False) for i, (s, key, value) in picked if s == side]
            sides[side] = Rows.merge(rows) if rows else None
        if sides["table"] is not None:
            rows = sides["table"]
            for name in chain:
                rows = one.step(name, rows)
        if sides["stream"] is not None:
            out += plain(one.step("join", sides["stream"]))
    return out


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("caching", [True, False])
@settings(max_examples=60, deadline=None)
@given(events=EVENTS, splits=SPLITS)
def test_each_row_meets_the_table_of_its_own_moment(left, caching, events, splits):
    one = task(left=left, caching=caching)
    state, expected, dropped = {}, [], 0
    for i, (side, key, value) in enumerate(events):
        if side == "table":
            dropped += key is None
            state[key] = value
        elif value is None or (key is None and not left):
            dropped += 1
        else:
            right = None if key is None else state.get(key)
            if left or right is not None:
                expected.append((i, key, f"{value}/{right}", "-", i))
    assert run(one, events, splits) == expected
    assert one.dropped == dropped


@settings(max_examples=60, deadline=None)
@given(events=EVENTS, splits=SPLITS)
def test_tables_without_a_store_are_seen_through_their_parents(events, splits):
    extra = (
        node("filtered", TableFilter(function(lambda v: v > 0, 1), "table"), stores=(), parents=("table",)),
        node("mapped", TableMapValues(function(lambda v: v * 10, 1), "filtered"), stores=(), parents=("filtered",)),
    )
    one = task(left=True, table="mapped", extra=extra)
    state, expected = {}, []
    for i, (side, key, value) in enumerate(events):
        if side == "table":
            state[key] = value * 10 if value is not None and value > 0 else None
        elif value is not None:
            expected.append((i, key, f"{value}/{None if key is None else state.get(key)}", "-", i))
    assert run(one, events, splits, ("table", "filtered", "mapped")) == expected


@settings(max_examples=60, deadline=None)
@given(events=EVENTS, splits=SPLITS, caching=st.booleans())
def test_an_aggregate_is_seen_as_it_grows(events, splits, caching):
    one = OneTask(
        node("table", StreamAggregate(Aggregation("count"), "store")),
        node("join", StreamTableJoin("table", PAIR, left=True), stores=()),
        stores=(store(),),
        caching=caching,
    )
    counts, expected = {}, []
    for i, (side, key, value) in enumerate(events):
        if side == "table":
            if key is not None and value is not None:
                counts[key] = counts.get(key, 0) + 1
        elif value is not None:
            expected.append((i, key, f"{value}/{counts.get(key) if key is not None else None}", "-", i))
    assert run(one, events, splits) == expected


def test_joiners_may_be_expressions_or_take_the_key():
    for joiner, expected in (
        (function(pl.col("left") * 100 + pl.col("right"), 2), 203),
        (function(lambda key, left, right: f"{key}{left}{right}", 3), "a23"),
    ):
        one = OneTask(
            node("table", TableSource("store")),
            node("join", StreamTableJoin("table", joiner), stores=()),
            stores=(store(),),
        )
        one.run("table", rows_of([("a", 3, 1)]))
        assert one.run("join", rows_of([("a", 2, 2)], first=1)).values.items() == [expected]


def test_a_joiner_that_raises_costs_only_its_row():
    one = OneTask(
        node("table", TableSource("store")),
        node("join", StreamTableJoin("table", function(lambda left, right: right // left, 2)), stores=()),
        stores=(store(),),
        on_failure="continue",
    )
    one.run("table", rows_of([("a", 6, 1)]))
    out = one.run("join", rows_of([("a", 2, 2), ("a", 0, 3), ("a", 3, 4)], first=1))
    assert out.values.items() == [3, 2]
    assert one.failures == [("join", 2, ZeroDivisionError)]
