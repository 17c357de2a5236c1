"""Expressions over rows: nulls and errors, each rule of ksqlDB; generated code that Python takes whatever its size."""

from __future__ import annotations

from datetime import date, time
from decimal import Decimal

import cloudpickle
import pytest
from sql_rows import Rows

from penstock.sql.evaluate import compile_rows

NOTHING = "N INT, T STRING, S STRUCT<F INT, G STRUCT<H STRING>>, L ARRAY<INT>, M MAP<STRING, INT>, C BOOLEAN, A INT"
ROW = (None, None, None, None, None, None, 7)

OF_NULLS = [
    # comparisons are false, not unknown
    ("N = A", False),
    ("N <> A", False),
    ("A > N", False),
    ("NOT (N = A)", True),
    ("N BETWEEN 1 AND 2", False),
    ("N NOT BETWEEN 1 AND 2", True),
    ("A BETWEEN N AND 9", False),
    ("N IN (1, 2)", False),
    ("N NOT IN (1, 2)", True),
    ("N IN (NULL, 1)", False),
    ("A IN (NULL, N, 7)", True),
    ("N IS NULL", True),
    ("N IS NOT NULL", False),
    ("N IS DISTINCT FROM A", True),
    ("N IS NOT DISTINCT FROM CAST(NULL AS INT)", True),
    ("T = 'a' OR A = 7", True),
    # arithmetic with null spoils all of the expression
    ("N + 1", None),
    ("-N", None),
    ("IFNULL(N + 1, 0)", None),
    ("IFNULL(ABS(N + 1), 0)", 0),
    ("COALESCE(N, A)", 7),
    ("A + ABS(N)", None),
    # a call or a field is evaluated on its own
    ("IFNULL(UCASE(S->G->H), 'z')", "z"),
    ("IFNULL(S->F, 3)", 3),
    ("S->G->H", None),
    ("S->G IS NULL", True),
    ("ARRAY[A, N + 1]", [7, None]),
    ("MAP('a' := N + 1, 'b' := A)", {"a": None, "b": 7}),
    ("MAP(T := A)", {"null": 7}),
    ("STRUCT(X := N + 1, Y := A)", {"X": None, "Y": 7}),
    ("IFNULL(CAST(N + 1 AS STRING), 'z')", "z"),
    # text
    ("'a' + T", "anull"),
    ("T + 'a'", "nulla"),
    ("CONCAT('a', T, 'b')", "ab"),
    ("'a' || T", "a"),
    ("T LIKE 'a%'", None),
    # conditions
    ("C AND TRUE", None),
    ("A = 1 AND C", False),
    ("A = 7 OR C", True),
    ("NOT C", None),
    ("CASE WHEN A = 1 THEN 'x' END", None),
    ("CASE WHEN A = 7 THEN 'x' WHEN N + 1 = 2 THEN 'y' END", "x"),
    ("CASE WHEN N = 7 THEN 'x' ELSE 'y' END", "y"),
    ("CASE WHEN A = 7 THEN NULL ELSE 'y' END", None),
    # collections
    ("L[1]", None),
    ("ARRAY[1, 2][1]", 1),
    ("ARRAY[1, 2][-1]", 2),
    ("ARRAY[1, 2][0]", None),
    ("ARRAY[1, 2][3]", None),
    ("ARRAY[1, 2][-3]", None),
    ("ARRAY[1, 2][N]", None),
    ("M['a']", None),
    ("MAP('a' := 1)['b']", None),
]


@pytest.mark.parametrize(("text", "expected"), OF_NULLS, ids=[text for text, _ in OF_NULLS])
def test_nulls(text, expected):
    found = Rows(NOTHING).of(text, *ROW)
    assert found == expected
    assert type(found) is type(expected)


NUMBERS = "I INT, B BIGINT, D DOUBLE, E DECIMAL(4, 2), T STRING, DAY DATE, CLOCK TIME, AT TIMESTAMP, ROWTIME BIGINT"
VALUES = (2**31 - 1, 2**63 - 1, 2.5, Decimal("10.10"), "tr", date(2020, 1, 2), time(9, 30), 86_400_000, 86_400_000)

OF_VALUES = [
    ("I + 1", "INTEGER", -(2**31)),
    ("I * 2", "INTEGER", -2),
    ("I + B", "BIGINT", -(2**63) + 2**31 - 2),
    ("-7 / 2", "INTEGER", -3),
    ("-7 % 2", "INTEGER", -1),
    ("I / 0", "INTEGER", None),
    ("D / 0", "DOUBLE", float("inf")),
    ("I + D", "DOUBLE", 2147483649.5),
    ("E + D", "DOUBLE", 12.6),
    ("E + E", "DECIMAL(5, 2)", Decimal("20.20")),
    ("E * 2", "DECIMAL(15, 2)", Decimal("20.20")),
    ("E / 2.00", "DECIMAL(10, 6)", Decimal("5.050000")),
    ("E / 3", "DECIMAL(15, 13)", None),
    ("CAST(E AS INT)", "INTEGER", 10),
    ("CAST(D AS DECIMAL(2, 0))", "DECIMAL(2, 0)", Decimal(3)),
    ("CAST(E AS DECIMAL(2, 1))", "DECIMAL(2, 1)", None),
    ("CAST(1E30 AS INT)", "INTEGER", 2**31 - 1),
    ("CAST(B AS INT)", "INTEGER", -1),
    ("CAST(10000000E0 AS STRING)", "STRING", "1.0E7"),
    ("CAST(T AS BOOLEAN)", "BOOLEAN", True),
    ("CAST('x' AS INT)", "INTEGER", None),
    ("CAST(MAP('a' := 1) AS STRING)", "STRING", "{a=1}"),
    ("CAST(STRUCT(A := 1, B := 'x') AS STRING)", "STRING", "Struct{A=1,B=x}"),
    ("CAST(TRUE AS STRING)", "STRING", "true"),
    ("1.0", "DECIMAL(2, 1)", Decimal("1.0")),
    ("0.005", "DECIMAL(4, 3)", Decimal("0.005")),
    ("1E0", "DOUBLE", 1.0),
    ("2147483648", "BIGINT", 2**31),
    ("ROUND(-1.5)", "DECIMAL(1, 0)", Decimal(-1)),
    ("I IN (1, '2147483647')", "BOOLEAN", True),
    ("D IN (1, 2.50)", "BOOLEAN", True),
    ("E IN (10.1, 3)", "BOOLEAN", True),
    ("T IN (TRUE, 10, 'tr')", "BOOLEAN", True),
    ("'10.30' IN (T, 10.30)", "BOOLEAN", True),
    ("TRUE IN ('yE', FALSE)", "BOOLEAN", True),
    ("ARRAY[NULL, 10, '2e1', I, B]", "ARRAY<DECIMAL(19, 0)>", [None, Decimal(10), Decimal(20), 2**31 - 1, 2**63 - 1]),
    (
        "ARRAY[STRUCT(X := I), STRUCT(Y := B)]",
        "ARRAY<STRUCT<`X` INTEGER, `Y` BIGINT>>",
        [{"X": 2**31 - 1, "Y": None}, {"X": None, "Y": 2**63 - 1}],
    ),
    ("GREATEST(1, '5')", "INTEGER", 5),
    ("DAY = '2020-01-02'", "BOOLEAN", True),
    ("'2020-01' < DAY", "BOOLEAN", True),
    ("CLOCK > '09:29'", "BOOLEAN", True),
    ("AT = '1970-01-02'", "BOOLEAN", True),
    ("AT = '1970-01-02T01:00+0100'", "BOOLEAN", True),
    ("AT > DAY", "BOOLEAN", False),
    ("DAY = T", "BOOLEAN", None),
    ("ROWTIME >= '1970-01-02'", "BOOLEAN", True),
    ("ROWTIME BETWEEN '1970-01-02T00:00:00Z' AND '1971'", "BOOLEAN", True),
    ("DATEADD(DAYS, 1, DAY)", "DATE", date(2020, 1, 3)),
    ("T LIKE 't_'", "BOOLEAN", True),
    ("T NOT LIKE '%x%'", "BOOLEAN", True),
    ("'50%' LIKE '__!%' ESCAPE '!'", "BOOLEAN", True),
    ("'501' LIKE '__!%' ESCAPE '!'", "BOOLEAN", False),
    ("'axb' LIKE 'a!xb' ESCAPE '!'", "BOOLEAN", True),
    ("'a\nb' LIKE 'a%'", "BOOLEAN", False),
    ("'a.b' LIKE 'a_b' AND NOT 'axb' LIKE 'a.b'", "BOOLEAN", True),
    ("'a' LIKE T + '%'", "BOOLEAN", False),
    ("TRANSFORM(ARRAY[1, 2], X => X + B)", "ARRAY<BIGINT>", [-(2**63), -(2**63) + 1]),
    ("TRANSFORM(ARRAY[1, 2], X => TRANSFORM(ARRAY[10], X => X + 1)[1] + X)", "ARRAY<INTEGER>", [12, 13]),
    ("FILTER(ARRAY['a', 'bb'], `x` => LEN(UCASE(`x`)) > 1)", "ARRAY<STRING>", ["bb"]),
    ("REDUCE(MAP('a' := 1, 'b' := 2), 0, (S, K, V) => S + V)", "INTEGER", 3),
    ("TRANSFORM(ARRAY[1], X => X / 0)", "ARRAY<INTEGER>", None),
]


@pytest.mark.parametrize(("text", "kind", "expected"), OF_VALUES, ids=[text for text, _, _ in OF_VALUES])
def test_values(text, kind, expected):
    rows = Rows(NUMBERS)
    assert str(rows.typed(text).type) == kind
    found = rows.of(text, *VALUES)
    assert found == expected
    assert type(found) is type(expected)
    if isinstance(expected, Decimal):
        assert found.as_tuple() == expected.as_tuple()


def test_an_error_makes_its_own_expression_null_and_no_other():
    rows = Rows("A INT, B INT")
    run = compile_rows([rows.typed("A / B"), rows.typed("A"), rows.typed("A + 1")], rows.errors, ["Q", "A", "R"])
    assert run((4, 0)) == (None, 4, 5)
    assert run((4, 2)) == (2, 4, 5)
    assert rows.errors.counts == {"Q": 1}


def test_errors_of_parts_are_counted_by_the_part():
    rows = Rows("A INT")
    assert rows.of("IFNULL(ABS(A + 1), 0)", None) == 0
    assert rows.errors.counts == {"ABS": 1}


def test_what_is_not_chosen_is_not_evaluated():
    rows = Rows("A INT, B INT")
    assert rows.of("CASE WHEN A = 0 THEN 0 WHEN LEN(CAST(B / A AS STRING)) = 1 THEN B / A END", 0, 1) == 0
    assert rows.of("A = 0 OR LEN(CAST(B / A AS STRING)) = 1", 0, 1) is True
    assert rows.errors.counts == {}


def test_a_predicate_takes_null_and_errors_as_false():
    rows = Rows("A INT, C BOOLEAN")
    assert rows.where("A / A = 1")((3, None)) is True
    assert rows.where("A / A = 1")((0, None)) is False
    assert rows.where("C")((0, None)) is False
    assert rows.errors.counts == {"WHERE": 1}


DEEP = {
    "sum": "+".join(["A"] * 150),
    "calls": "ABS(" * 70 + "A" + ")" * 70,
    "cases": "CASE WHEN ABS(ABS(A)) = 1 THEN " * 35 + "A" + " END" * 35,
    "lambdas": "".join(f"REDUCE(ARRAY[A], 0, (S{i}, X{i}) => S{i} + " for i in range(25)) + "X0" + ")" * 25,
    "branches": "CASE " + " ".join(f"WHEN ABS(ABS(A)) = {i + 2} THEN {i}" for i in range(300)) + " ELSE A END",
    "conditions": " AND ".join(["ABS(ABS(A)) = 1"] * 300),
    "items": f"ARRAY_LENGTH(ARRAY[{', '.join(['A + 1'] * 2000)}])",
}


@pytest.mark.parametrize(("form", "expected"), [*zip(DEEP, (150, 1, 1, 1, 1, True, 2000), strict=True)], ids=[*DEEP])
def test_expressions_of_any_size(form, expected):
    assert Rows("A INT").of(DEEP[form], 1) == expected


def test_names_and_texts_of_a_statement_never_become_code():
    evil = "x'); import os #"
    rows = Rows("`a b` INT, S STRUCT<`it's \\ \"\n` INT>")
    assert rows.of("`a b` + 1", 1, None) == 2
    assert rows.of(f"'{evil.replace(chr(39), chr(39) * 2)}' + 'y'") == evil + "y"
    assert rows.of("S->`it's \\ \"\n`", 1, {"it's \\ \"\n": 5}) == 5
    assert rows.of("TRANSFORM(ARRAY[1], `q):` => `q):` + 1)") == [2]


def test_compiled_expressions_travel_to_workers():
    rows = Rows("A INT, T STRING")
    run = compile_rows([rows.typed("LPAD(UCASE(T), A + 1, 'x')"), rows.typed("T LIKE 'a%'")], rows.errors)
    assert cloudpickle.loads(cloudpickle.dumps(run))((3, "ab")) == ("xxAB", True)
