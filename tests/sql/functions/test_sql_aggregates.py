"""Aggregates: examples, plain states, undo and merge, nulls, wrong types; table functions."""

import json
import math
from datetime import date
from decimal import Decimal

import pytest
from sql_expressions import evaluate

from penstock.sql.functions.aggregates import Arrivals, aggregate_functions
from penstock.sql.functions.builtin import table_functions
from penstock.sql.types import (
    BIGINT,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    ArrayType,
    DecimalType,
    SqlTypeError,
    SqlValueError,
)

FUNCTIONS = list(aggregate_functions())
D41 = DecimalType(4, 1)


def bound(name, *kinds, constants=()):
    return aggregate_functions().resolve(name, kinds, constants)


def arguments(function):
    """Types and constants that fit the function's example."""
    rows, _ = function.example
    kinds = [STRING if isinstance(v, str) else ArrayType(INTEGER) if isinstance(v, list) else INTEGER for v in rows[0]]
    return ([*kinds, INTEGER], [2]) if function.name.startswith("TOPK") else (kinds, [])


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_examples_and_laws(function):
    rows, expected = function.example
    kinds, constants = arguments(function)
    found = aggregate_functions().resolve(function.name, kinds, constants)
    assert found.fold(rows) == pytest.approx(expected)
    steps = found.steps
    state = steps.initialise()
    for row in rows:
        state = steps.add(state, *row)
        state = json.loads(json.dumps(state))
    assert steps.result(state) == pytest.approx(expected)
    one, two = steps.add(steps.initialise(), *rows[0]), steps.initialise()
    for row in rows[1:]:
        two = steps.add(two, *row)
    assert steps.result(steps.merge(one, two)) == pytest.approx(expected)
    assert function.can_undo is (steps.undo is not None)
    if steps.undo:
        assert steps.result(steps.undo(steps.add(state, *rows[-1]), *rows[-1])) == pytest.approx(expected)
    assert function.meaning.endswith(".")


def test_how_many():
    assert len(FUNCTIONS) == 18
    assert {function.name for function in FUNCTIONS if not function.can_undo} == {
        "MIN", "MAX", "TOPK", "TOPKDISTINCT", "COLLECT_SET", "COUNT_DISTINCT", "EARLIEST_BY_OFFSET", "LATEST_BY_OFFSET",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kinds", "constants", "rows", "expected"),
    [
        ("SUM", [INTEGER], [], [(2**31 - 1,), (1,)], -(2**31)),
        ("SUM", [D41], [], [(Decimal("5.4"),), (Decimal("100.1"),)], Decimal("105.5")),
        ("SUM", [INTEGER], [], [(None,)], 0),
        ("AVG", [DOUBLE], [], [], 0.0),
        ("COUNT", [], [], [(), ()], 2),
        ("MAX", [DATE], [], [(date(2020, 1, 2),), (None,), (date(2020, 1, 1),)], date(2020, 1, 2)),
        ("MIN", [BYTES], [], [(b"b",), (b"a",)], b"a"),
        ("MIN", [STRING], [], [(None,)], None),
        ("TOPK", [INTEGER, STRING, INTEGER], [2], [(1, "a"), (None, "x"), (3, None)], [{"sort_col": 3, "col0": None}, {"sort_col": 1, "col0": "a"}]),
        ("TOPKDISTINCT", [D41, INTEGER], [2], [(Decimal("1.0"),), (Decimal("1.0"),), (Decimal("2.5"),)], [Decimal("2.5"), Decimal("1.0")]),
        ("COLLECT_SET", [D41], [], [(None,), (Decimal("1.0"),), (None,)], [None, Decimal("1.0")]),
        ("COLLECT_LIST", [DATE], [], [(date(1970, 1, 2),), (None,)], [date(1970, 1, 2), None]),
        ("HISTOGRAM", [STRING], [], [(None,), ("a",)], {"null": 1, "a": 1}),
        ("ATTR", [STRING], [], [("1",), (None,)], None),
        ("EARLIEST_BY_OFFSET", [INTEGER, INTEGER, INTEGER], [2, False], [(None,), (1,), (2,)], [None, 1]),
        ("LATEST_BY_OFFSET", [INTEGER, INTEGER], [False], [(1,), (None,)], None),
        ("LATEST_BY_OFFSET", [INTEGER, INTEGER], [2], [(None,)], []),
        ("STDDEV_SAMP", [BIGINT], [], [(5,)], 0.0),
    ],
)  # fmt: skip
def test_results(name, kinds, constants, rows, expected):
    if name.endswith("OFFSET") and isinstance(constants[-1], bool):
        from penstock.sql.types import BOOLEAN

        kinds = [*kinds[:-1], BOOLEAN]
    assert aggregate_functions().resolve(name, kinds, constants).fold(rows) == expected


def test_undo_of_lists_and_histograms():
    steps = bound("COLLECT_LIST", INTEGER).steps
    assert steps.undo([1, 2, 1], 1) == [1, 2]
    assert steps.undo([1], 5) == [1]
    steps = bound("HISTOGRAM", STRING).steps
    assert steps.undo({"a": 1, "b": 2}, "a") == {"b": 2}
    steps = bound("ATTR", STRING).steps
    assert steps.result(steps.undo([["2", 1], ["3", 1]], "3")) == "2"


def test_limits():
    registry = aggregate_functions(list_limit=1, set_limit=1)
    assert registry.resolve("collect_list", [INTEGER]).fold([(1,), (2,)]) == [1]
    assert registry.resolve("collect_set", [INTEGER]).fold([(1,), (2,)]) == [1]
    histogram = bound("HISTOGRAM", STRING)
    assert len(histogram.fold([(str(number),) for number in range(1100)])) == 1000


def test_decimal_sums_overflow():
    with pytest.raises(SqlValueError, match="does not fit"):
        bound("SUM", DecimalType(3, 1)).fold([(Decimal("50.9"),), (Decimal("50.8"),)])


def test_correlation_without_spread():
    assert math.isnan(bound("CORRELATION", INTEGER, INTEGER).fold([(1, 2), (1, 5)]))
    assert bound("CORRELATION", DOUBLE, DOUBLE).fold([(1.0, 2.0), (None, 4.0), (2.0, 1.0)]) == -1.0


def test_estimate_of_distinct_values():
    found = bound("COUNT_DISTINCT", INTEGER).fold([(number % 20_000,) for number in range(30_000)])
    assert abs(found - 20_000) < 1000


def test_merged_sessions_keep_the_order_of_arrival():
    steps = bound("LATEST_BY_OFFSET", INTEGER).steps
    one, two = steps.add(steps.initialise(), 1), steps.add(steps.initialise(), 2)
    assert steps.result(steps.merge(one, two)) == steps.result(steps.merge(two, one)) == 2
    arrivals = Arrivals(lambda: 7)
    assert [arrivals.next(), arrivals.next()] == [7, 8]


@pytest.mark.parametrize(
    ("name", "kinds", "constants", "message"),
    [
        ("SUM", [STRING], [], "has no signature for the parameters"),
        ("NO_SUCH", [STRING], [], "No function has the name 'NO_SUCH'"),
        ("TOPK", [INTEGER, INTEGER], [], "must be a literal"),
        ("TOPK", [INTEGER, INTEGER], [0], "must be a positive"),
        ("LATEST_BY_OFFSET", [INTEGER, INTEGER], [-1], "positive"),
    ],
)
def test_refusals(name, kinds, constants, message):
    with pytest.raises(SqlTypeError, match=message):
        aggregate_functions().resolve(name, kinds, constants)


def test_table_functions():
    for function in table_functions():
        for example in function.examples:
            given = evaluate(example.call.partition("(")[2][:-1])
            kind = ArrayType(INTEGER)
            assert table_functions().resolve(function.name, [kind]).call(given) == evaluate(example.result)
    cube = table_functions().resolve("CUBE_EXPLODE", [ArrayType(STRING)])
    assert str(cube.type) == "ARRAY<STRING>"
    assert cube.call(["a", "b"]) == [[None, None], [None, "b"], ["a", None], ["a", "b"]]
    assert cube.call(None) == []
    with pytest.raises(SqlValueError, match="2\\^21"):
        cube.call(["x"] * 21)
    assert table_functions().resolve("EXPLODE", [ArrayType(STRING)]).call(None) == []
    with pytest.raises(SqlTypeError, match="has no signature"):
        table_functions().resolve("EXPLODE", [STRING])
