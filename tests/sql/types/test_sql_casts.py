"""Casts of every kind: ordinary, null, overflow, text that is not a value, and pairs that are refused."""

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
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    SqlTypeError,
    SqlValueError,
    StructType,
)
from penstock.sql.types.conversions import cast, cast_function
from penstock.sql.types.numbers import double_text

D21 = DecimalType(2, 1)


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        ("t", STRING, BOOLEAN, True),
        ("YES", STRING, BOOLEAN, True),
        ("", STRING, BOOLEAN, False),
        ("truely", STRING, BOOLEAN, False),
        (" 12 ", STRING, INTEGER, 12),
        ("-9223372036854775808", STRING, BIGINT, -(2**63)),
        ("1e3", STRING, DOUBLE, 1000.0),
        ("-Infinity", STRING, DOUBLE, -math.inf),
        ("0.99", STRING, D21, Decimal("1.0")),
        ("1970-02", STRING, DATE, date(1970, 2, 1)),
        ("09:16", STRING, TIME, time(9, 16)),
        ("2022-04-28T21:44:47.943Z", STRING, TIMESTAMP, 1651182287943),
        ("2019-01-01T00:00:00+0445", STRING, TIMESTAMP, 1546283700000),
        ("2018", STRING, TIMESTAMP, 1514764800000),
        (2**31, BIGINT, INTEGER, -(2**31)),
        (1e19, DOUBLE, BIGINT, 2**63 - 1),
        (-2.9, DOUBLE, INTEGER, -2),
        (math.nan, DOUBLE, INTEGER, 0),
        (Decimal("-1.9"), D21, INTEGER, -1),
        (Decimal(2**32 + 5), DecimalType(12, 0), INTEGER, 5),
        (Decimal("1.5"), D21, DOUBLE, 1.5),
        (0.05, DOUBLE, D21, Decimal("0.1")),
        (-0.05, DOUBLE, D21, Decimal("-0.1")),
        (7, INTEGER, D21, Decimal("7.0")),
        (-2000, TIMESTAMP, TIME, time(23, 59, 58)),
        (-1, TIMESTAMP, DATE, date(1969, 12, 31)),
        (date(1970, 1, 3), DATE, TIMESTAMP, 172800000),
        (True, BOOLEAN, STRING, "true"),
        (1e7, DOUBLE, STRING, "1.0E7"),
        (Decimal("0.00"), DecimalType(4, 2), STRING, "0.00"),
        (Decimal("1E+2"), DecimalType(4, 0), STRING, "100"),
        (10, TIMESTAMP, STRING, "1970-01-01T00:00:00.010"),
        (time(0, 0, 4), TIME, STRING, "00:00:04"),
        ({"a": 1, "b": None}, MapType(STRING, INTEGER), STRING, "{a=1, b=null}"),
        ({"A": 1, "b": None}, StructType.of(A=INTEGER, b=STRING), STRING, "Struct{A=1}"),
        ([1, None], ArrayType(BIGINT), ArrayType(STRING), ["1", None]),
        (
            {"k": {"n": "10"}},
            MapType(STRING, MapType(STRING, STRING)),
            MapType(STRING, MapType(STRING, INTEGER)),
            {"k": {"n": 10}},
        ),
        (
            {"A": 1, "B": "x"},
            StructType.of(A=BIGINT, B=STRING),
            StructType.of(A=STRING, C=STRING),
            {"A": "1", "C": None},
        ),
    ],
)
def test_casts(value, source, target, expected):
    found = cast(value, source, target)
    assert found == expected
    assert type(found) is type(expected)
    if isinstance(expected, Decimal):
        assert found.as_tuple() == expected.as_tuple()
    assert cast(None, source, target) is None


@pytest.mark.parametrize(
    ("value", "source", "target"),
    [
        ("x", STRING, INTEGER),
        ("2147483648", STRING, INTEGER),
        ("1" * 20_000, STRING, BIGINT),
        ("1_0", STRING, INTEGER),
        ("1_0.0", STRING, DOUBLE),
        ("", STRING, DOUBLE),
        ("1e999999999", STRING, D21),
        ("9.95", STRING, D21),
        (12.5, DOUBLE, D21),
        (math.nan, DOUBLE, D21),
        ("foo", STRING, DATE),
        ("2020-13-01", STRING, DATE),
        ("2020-01-01T10", STRING, DATE),
        ("25:00", STRING, TIME),
        ("2020-01-01 Nowhere/City", STRING, TIMESTAMP),
        ("2020-01-01T00:00:00+19:00", STRING, TIMESTAMP),
        (["1", "x"], ArrayType(STRING), ArrayType(INTEGER)),
    ],
)
def test_values_that_do_not_fit(value, source, target):
    with pytest.raises(SqlValueError):
        cast(value, source, target)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (STRING, MapType(STRING, INTEGER), "No CAST turns STRING into MAP<STRING, INTEGER>"),
        (BYTES, STRING, "No CAST turns BYTES into STRING"),
        (BOOLEAN, INTEGER, "No CAST turns BOOLEAN into INTEGER"),
        (INTEGER, BOOLEAN, "No CAST turns INTEGER into BOOLEAN"),
        (TIME, TIMESTAMP, "No CAST turns TIME into TIMESTAMP"),
        (BOOLEAN, D21, r"No CAST turns BOOLEAN into DECIMAL\(2, 1\)"),
        (ArrayType(BYTES), ArrayType(DATE), "No CAST turns BYTES into DATE"),
    ],
)
def test_casts_that_are_refused(source, target, message):
    with pytest.raises(SqlTypeError, match=message):
        cast_function(source, target)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.001, "0.001"),
        (0.0009999, "9.999E-4"),
        (9999999.0, "9999999.0"),
        (12345678.9, "1.23456789E7"),
        (-1.5e300, "-1.5E300"),
        (4.9e-324, "4.9E-324"),
        (100.0, "100.0"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
    ],
)
def test_java_text_of_doubles(value, text):
    assert double_text(value) == text
