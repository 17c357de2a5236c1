"""Arithmetic and comparisons: result types, overflow, division by zero, nulls, types that do not fit."""

import math
from datetime import date, time
from decimal import Decimal

import pytest

from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    SqlTypeError,
    SqlValueError,
)
from penstock.sql.types.operators import arithmetic, comparison, distinct, negation

D42, D53 = DecimalType(4, 2), DecimalType(5, 3)


@pytest.mark.parametrize(
    ("operator", "left", "right", "expected"),
    [
        ("+", INTEGER, INTEGER, "INTEGER"),
        ("*", INTEGER, BIGINT, "BIGINT"),
        ("+", D42, DOUBLE, "DOUBLE"),
        ("+", D42, D53, "DECIMAL(6, 3)"),
        ("-", INTEGER, D42, "DECIMAL(13, 2)"),
        ("*", D42, D53, "DECIMAL(10, 5)"),
        ("/", D42, D42, "DECIMAL(11, 7)"),
        ("/", DecimalType(2, 0), DecimalType(2, 0), "DECIMAL(8, 6)"),
        ("%", D42, D53, "DECIMAL(5, 3)"),
        ("+", STRING, STRING, "STRING"),
    ],
)
def test_types_of_results(operator, left, right, expected):
    assert str(arithmetic(operator, left, right).type) == expected


@pytest.mark.parametrize(
    ("operator", "kind", "left", "right", "expected"),
    [
        ("+", INTEGER, 2**31 - 1, 1, -(2**31)),
        ("*", BIGINT, 2**62, 2, -(2**63)),
        ("/", INTEGER, -7, 2, -3),
        ("%", INTEGER, -7, 2, -1),
        ("/", INTEGER, -(2**31), -1, -(2**31)),
        ("/", DOUBLE, 1.0, 0.0, math.inf),
        ("/", DOUBLE, -1.0, 0.0, -math.inf),
        ("%", DOUBLE, -7.5, 2.0, -1.5),
        ("+", D42, Decimal("99.99"), Decimal("99.99"), Decimal("199.98")),
        ("*", D42, Decimal("10.10"), Decimal("0.00"), Decimal("0.0000")),
        ("/", D42, Decimal("10.10"), Decimal("-2.00"), Decimal("-5.0500000")),
        ("%", D42, Decimal("-7.50"), Decimal("2.00"), Decimal("-1.50")),
        ("+", STRING, "a", "b", "ab"),
    ],
)
def test_results(operator, kind, left, right, expected):
    found = arithmetic(operator, kind, kind).apply(left, right)
    assert found == expected
    assert str(found) == str(expected)


def test_nan_of_doubles():
    assert math.isnan(arithmetic("/", DOUBLE, INTEGER).apply(0.0, 0))
    assert math.isnan(arithmetic("%", DOUBLE, DOUBLE).apply(1.0, 0.0))


@pytest.mark.parametrize(
    ("operator", "kind", "left", "right"),
    [
        ("/", INTEGER, 1, 0),
        ("%", BIGINT, 1, 0),
        ("/", D42, Decimal(1), Decimal(0)),
        ("/", D42, Decimal(1), Decimal(3)),
        ("%", D42, Decimal(1), Decimal(0)),
    ],
)
def test_results_that_cannot_be_computed(operator, kind, left, right):
    with pytest.raises(SqlValueError):
        arithmetic(operator, kind, kind).apply(left, right)


def test_types_without_arithmetic():
    with pytest.raises(SqlTypeError, match=r"Arithmetic does not take BOOLEAN and DECIMAL"):
        arithmetic("+", BOOLEAN, D42)
    with pytest.raises(SqlTypeError, match=r"Arithmetic does not take STRING and STRING"):
        arithmetic("-", STRING, STRING)


def test_negation():
    assert negation(INTEGER)(-(2**31)) == -(2**31)
    assert str(negation(D42)(Decimal("1.50"))) == "-1.50"
    assert str(negation(D42)(Decimal("0.00"))) == "0.00"
    with pytest.raises(SqlTypeError, match="STRING"):
        negation(STRING)


@pytest.mark.parametrize(
    ("left", "operator", "right", "kinds", "expected"),
    [
        (1, "=", 1.0, (INTEGER, DOUBLE), True),
        (11.01, "=", Decimal("11.01"), (DOUBLE, D42), True),
        (Decimal("1.10"), "=", Decimal("1.1"), (D42, D42), True),
        (2**53 + 1, "=", 2.0**53, (BIGINT, DOUBLE), True),
        (date(1970, 1, 11), ">", 863999999, (DATE, TIMESTAMP), True),
        (time(0, 0, 0, 10_000), "=", "00:00:00.010", (TIME, STRING), True),
        ("1970-01-01T00:00:00.010", "<", 11, (STRING, TIMESTAMP), True),
        (b"a", "<", b"b", (BYTES, BYTES), True),
        ("B", "<", "a", (STRING, STRING), True),
        ("\ue000", ">", "\U00010000", (STRING, STRING), True),
        ([1], "<>", [2], (ArrayType(INTEGER), ArrayType(INTEGER)), True),
        ({"a": 1}, "=", {"a": 1}, (MapType(STRING, INTEGER), MapType(STRING, INTEGER)), True),
        (True, "<>", False, (BOOLEAN, BOOLEAN), True),
    ],
)
def test_comparisons(left, operator, right, kinds, expected):
    compare = comparison(operator, *kinds)
    assert compare(left, right) is expected
    assert compare(None, right) is compare(left, None) is compare(None, None) is False


@pytest.mark.parametrize(
    ("left", "operator", "right", "message"),
    [
        (INTEGER, "=", STRING, "EQUAL does not compare INTEGER and STRING."),
        (BOOLEAN, "<", BOOLEAN, "LESS_THAN"),
        (
            ArrayType(INTEGER),
            "<",
            ArrayType(INTEGER),
            "LESS_THAN does not compare ARRAY<INTEGER> and ARRAY<INTEGER>.",
        ),
        (ArrayType(INTEGER), "=", ArrayType(BIGINT), "EQUAL"),
        (TIME, "=", TIMESTAMP, "EQUAL"),
        (NULL, "<>", NULL, "NULL cannot be compared: null <> null"),
    ],
)
def test_types_that_do_not_compare(left, operator, right, message):
    with pytest.raises(SqlTypeError, match=message):
        comparison(operator, left, right)


def test_text_that_is_no_date_is_an_error():
    with pytest.raises(SqlValueError, match="not a date"):
        comparison("=", DATE, STRING)(date(2020, 1, 1), "soon")


def test_distinct():
    apart = distinct(INTEGER, DOUBLE)
    assert [apart(1, 1.0), apart(1, 2.0), apart(None, 1.0), apart(None, None)] == [False, True, True, False]
    assert distinct(STRING, NULL)("x", None) is True
