"""Types: canonical text, checks, widening and common types."""

import pytest

from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    ArrayType,
    DecimalType,
    MapType,
    SqlTypeError,
    StructType,
)
from penstock.sql.types.conversions import common_type, common_type_of, widening, widens
from penstock.sql.types.sql_type import base_name, quoted


def test_text_of_nested_types():
    kind = MapType(STRING, ArrayType(StructType.of((("A", DecimalType(6, 3)), ("x`y", DATE)))))
    assert str(kind) == "MAP<STRING, ARRAY<STRUCT<`A` DECIMAL(6, 3), `x``y` DATE>>>"
    assert base_name(kind) == "MAP"
    assert quoted("plain") == "`plain`"


def test_types_are_values():
    assert {DecimalType(4, 2): 1}[DecimalType(4, 2)] == 1
    assert ArrayType(INTEGER) != ArrayType(BIGINT)


@pytest.mark.parametrize(("precision", "scale"), [(0, 0), (3, -1), (2, 3)])
def test_decimals_that_cannot_be(precision, scale):
    with pytest.raises(SqlTypeError, match="DECIMAL"):
        DecimalType(precision, scale)


def test_fields_of_a_struct():
    kind = StructType.of(A=INTEGER, a=STRING)
    assert (kind.field("A"), kind.field("a"), kind.field("b")) == (INTEGER, STRING, None)
    with pytest.raises(SqlTypeError, match="Duplicate field names"):
        StructType.of((("A", INTEGER), ("A", STRING)))


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (INTEGER, BIGINT, True),
        (BIGINT, INTEGER, False),
        (BIGINT, DecimalType(19, 0), True),
        (BIGINT, DecimalType(18, 0), False),
        (DecimalType(4, 2), DecimalType(5, 2), True),
        (DecimalType(4, 2), DecimalType(4, 3), False),
        (DecimalType(40, 2), DOUBLE, True),
        (DOUBLE, DecimalType(40, 2), False),
        (NULL, DATE, True),
        (STRING, DATE, False),
        (BOOLEAN, INTEGER, False),
        (ArrayType(INTEGER), ArrayType(DOUBLE), True),
        (MapType(STRING, DOUBLE), MapType(STRING, INTEGER), False),
        (StructType.of(A=INTEGER), StructType.of(B=STRING, A=BIGINT), True),
        (StructType.of(C=INTEGER), StructType.of(A=BIGINT), False),
    ],
)
def test_widens(source, target, expected):
    assert widens(source, target) is expected


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], "null"),
        ([NULL, INTEGER, NULL], "INTEGER"),
        ([INTEGER, BIGINT, DOUBLE], "DOUBLE"),
        ([BIGINT, DecimalType(4, 2)], "DECIMAL(21, 2)"),
        ([DecimalType(9, 2), DecimalType(7, 6)], "DECIMAL(13, 6)"),
        (
            [StructType.of(X=INTEGER, Y=BIGINT), StructType.of(Y=INTEGER, Z=STRING)],
            "STRUCT<`X` INTEGER, `Y` BIGINT, `Z` STRING>",
        ),
        ([MapType(STRING, NULL), MapType(STRING, BIGINT)], "MAP<STRING, BIGINT>"),
    ],
)
def test_common_types(kinds, expected):
    assert str(common_type_of(kinds)) == expected


def test_types_without_a_common_one():
    with pytest.raises(SqlTypeError, match="no common type of INTEGER and STRING"):
        common_type(INTEGER, STRING)


def test_widening_changes_values():
    assert widening(INTEGER, BIGINT) is None
    assert widening(ArrayType(INTEGER), ArrayType(DOUBLE))([1, None]) == [1.0, None]
    wide = widening(StructType.of(A=INTEGER), StructType.of(A=DecimalType(12, 2), B=STRING))
    assert str(wide({"A": 3})) == "{'A': Decimal('3.00'), 'B': None}"
    assert wide(None) is None
    assert widening(MapType(STRING, INTEGER), MapType(STRING, DOUBLE))({"k": 2}) == {"k": 2.0}
    with pytest.raises(SqlTypeError, match="does not widen"):
        widening(DOUBLE, INTEGER)
