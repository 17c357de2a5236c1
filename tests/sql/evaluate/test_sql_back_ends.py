"""Two back ends, one meaning: what Polars computes of columns equals what the generated code computes of rows."""

from __future__ import annotations

import math
from datetime import date

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sql_rows import Rows

from examples import examples
from penstock.errors import SqlError
from penstock.serde.column import Column, RowColumn
from penstock.sql.evaluate import compile_predicate, compile_rows
from penstock.sql.evaluate.vectorised import back_end, compile_columns, explain
from penstock.sql.functions import EvaluationErrors

DECLARED = "I INT, J INT, B BIGINT, C BIGINT, D DOUBLE, E DOUBLE, S STRING, T STRING, P BOOLEAN, Q BOOLEAN, DAY DATE"
INTS = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)])
LONGS = st.integers(-(2**63), 2**63 - 1) | INTS | st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1])
DOUBLES = st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, float(2**53)])
TEXTS = st.text("ab%_.\\\n\r\u2028 ä\U0001f600", max_size=4)
DAYS = st.dates(date(1900, 1, 1), date(2100, 1, 1))
KINDS = [INTS, INTS, LONGS, LONGS, DOUBLES, DOUBLES, TEXTS, TEXTS, st.booleans(), st.booleans(), DAYS]
DTYPES = [*[pl.Int32] * 2, *[pl.Int64] * 2, *[pl.Float64] * 2, *[pl.String] * 2, *[pl.Boolean] * 2, pl.Date]
ROWS = st.lists(st.tuples(*(st.none() | kind for kind in KINDS)), min_size=1, max_size=8)

SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
NUMBER = st.sampled_from(["I", "J", "B", "C", "D", "E", "1", "-2147483648", "9223372036854775807", "1.5E0", "0E0"])
ARITHMETIC = st.recursive(
    NUMBER,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner) | st.builds("(- ({}))".format, inner)
    ),
    max_leaves=6,
)
CONDITION = st.one_of(
    st.builds("{} {} {}".format, NUMBER, SIGNS, NUMBER),
    st.builds("{} {} {}".format, st.sampled_from(["S", "T", "'a'"]), st.sampled_from(["=", "<>"]), st.just("T")),
    st.builds("{} {} {}".format, st.sampled_from(["P", "TRUE"]), st.sampled_from(["=", "<>"]), st.just("Q")),
    st.builds("DAY {} '{}'".format, SIGNS, DAYS),
    st.builds("{} BETWEEN {} AND {}".format, NUMBER, NUMBER, NUMBER),
    st.builds("I IN ({}, NULL, {})".format, st.integers(-9, 9), st.integers(-9, 9)),
    st.sampled_from(["S IN ('a', 'b', NULL)", "S NOT IN ('a')", "S IS NULL", "D IS NOT NULL", "TRUE"]),
)
CONDITIONS = st.recursive(
    CONDITION,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner)
        | st.builds("(NOT {})".format, inner)
    ),
    max_leaves=5,
)
LIKES = st.builds("S {}LIKE '{}'{}".format, st.sampled_from(["", "NOT "]), TEXTS, st.sampled_from(["", " ESCAPE '.'"]))
SUMS = st.sampled_from(["S + T", "'x' + S", "S + 'ä' + T"])
LETTER = st.sampled_from(
    ["a", "b", "%", "ä", r"\\.", ".", r"\\w", r"\\S", r"\\d", "[^a]", "[ab_]", r"[\\s%]", "(a)", "(b|ab)"]
)
PATTERNS = st.lists(
    st.builds("{}{}".format, LETTER, st.sampled_from(["", "", "*", "+", "?", "+?", "{1,2}"])), min_size=1, max_size=4
).map("".join) | st.sampled_from(["^(a|b)+$", "(a*)*", "(?:a|ab)(b?)$", "^[^\n]*$", "(.)(.)", "a|(b)"])
PARTS = st.builds("REGEXP_EXTRACT('{}', S)".format, PATTERNS.map(lambda text: text.replace("\\\\", "\\")))
NUMBERS_IN_TEXT = st.sampled_from(["CAST(U AS INT)", "CAST(U AS BIGINT)", "CAST(U AS INT) >= 4", "CAST(U AS INT) + I"])
CASES = st.builds(
    "CASE WHEN {} THEN {} WHEN S LIKE '%b%' THEN 'y' ELSE 'z' END".format,
    CONDITIONS | LIKES,
    st.sampled_from(["'x'", "NULL"]),
) | st.builds("CASE WHEN {} THEN 1 END".format, CONDITIONS)
EXPRESSIONS = st.one_of(ARITHMETIC, CONDITIONS, LIKES, SUMS, st.sampled_from(["S", "DAY", "P"]))


def by_column(expressions, errors, names, frame):
    """The columns of expressions over the columns of a frame, and the same from Python lists."""
    rows = RowColumn([Column.of_series(series) for series in frame.get_columns()], len(frame))
    lists = RowColumn([Column.of_items(series.to_list()) for series in frame.get_columns()], len(frame))
    found = compile_columns(expressions, errors, names)(rows)
    again = compile_columns(expressions, EvaluationErrors(), names)(lists)
    assert [shown(column.items()) for column in again] == [shown(column.items()) for column in found]
    return found


def shown(values):
    """Values that compare as they print, so that NaN is itself and -0.0 is not 0.0."""
    return [repr(value) for value in values]


TEXTS_OF_NUMBERS = st.sampled_from(
    ["1", "-7", "007", "0", "123456789", "2147483648", "99999999999999999999", " 5", "x", ""]
)


@settings(max_examples=examples(300), deadline=None)
@given(PARTS | CASES | NUMBERS_IN_TEXT, ROWS, st.lists(st.none() | TEXTS_OF_NUMBERS, min_size=8, max_size=8))
def test_parts_of_texts_numbers_in_them_and_case_equal_the_generated_code(text, rows, numbers):
    scope = Rows(f"{DECLARED}, U STRING")
    try:
        expression = scope.typed(text)
    except SqlError:
        assume(False)
    rows = [(*row, number) for row, number in zip(rows, numbers, strict=False)]
    dtypes = [*DTYPES, pl.String]
    frame = pl.DataFrame({str(at): pl.Series([row[at] for row in rows], dtype=kind) for at, kind in enumerate(dtypes)})
    python, polars = EvaluationErrors(), EvaluationErrors()
    by_row = compile_rows([expression], python, ["X"])
    (column,) = by_column([expression], polars, ["X"], frame)
    assert shown(column.items()) == shown(by_row(row)[0] for row in rows)
    assert polars.counts == python.counts


@pytest.mark.parametrize(
    "text",
    [
        *("REGEXP_EXTRACT('^(\\S+) .*$', S)", "REGEXP_EXTRACT('(a)(b+)', S, 2)", "CAST(S AS INT)", "S IS NULL"),
        "CAST(REGEXP_EXTRACT('[0-9]+', S) AS INT) >= 400",
        "CASE WHEN REGEXP_EXTRACT('.*', S) LIKE '%a%' THEN 'x' ELSE 'y' END",
    ],
)
def test_parts_of_texts_and_case_run_in_polars(text):
    assert back_end(Rows(DECLARED).typed(text)) == "Polars"


@settings(max_examples=examples(200), deadline=None)
@given(EXPRESSIONS, ROWS)
def test_both_back_ends_are_equal(text, rows):
    scope = Rows(DECLARED)
    expression = scope.typed(text)
    assert back_end(expression) == "Polars"
    frame = pl.DataFrame({str(at): pl.Series([row[at] for row in rows], dtype=kind) for at, kind in enumerate(DTYPES)})
    python, polars = EvaluationErrors(), EvaluationErrors()
    by_row = compile_rows([expression], python, ["X"])
    (column,) = by_column([expression], polars, ["X"], frame)
    assert shown(column.items()) == shown(by_row(row)[0] for row in rows)
    assert polars.counts == python.counts


@pytest.mark.parametrize("zero", ["0E0", "-0E0", "0", "(0E0 * -1)"])
@pytest.mark.parametrize(
    "form", ["{zero} + D", "D + {zero}", "{zero} - D", "D - {zero}", "D + {zero} + {zero}", "D * {zero}"]
)
def test_zeros_keep_their_sign_beside_the_same_zero_for_all_rows(form, zero):
    expression = Rows("D DOUBLE").typed(form.format(zero=zero))
    rows = [(number,) for number in (0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, None)]
    frame = pl.DataFrame({"0": pl.Series([number for (number,) in rows], dtype=pl.Float64)})
    by_row = compile_rows([expression], EvaluationErrors(), ["X"])
    (column,) = by_column([expression], EvaluationErrors(), ["X"], frame)
    assert back_end(expression) == "Polars"
    assert shown(column.items()) == shown(by_row(row)[0] for row in rows)


@pytest.mark.parametrize(
    "text",
    [
        *("I / J", "I % J", "D % E", "UCASE(S)", "CAST(B AS INT)", "S < T", "I + 1 > J", "P AND Q", "NOT P"),
        *("IFNULL(I, 0)", "CASE WHEN P THEN 1 END", "1.0 + I", "S LIKE T", "I IN (J)", "S LIKE 'a' AND TRUE"),
    ],
)
def test_forms_that_polars_would_compute_otherwise_are_python_s(text):
    assert back_end(Rows(DECLARED).typed(text)) == "Python"


def test_each_expression_takes_its_own_back_end():
    scope = Rows("I INT, S STRING")
    texts = ["I + 1", "UCASE(S)", "S", "S = 'a'"]
    expressions = [scope.typed(text) for text in texts]
    assert explain(expressions, texts) == [
        "I + 1 INTEGER: Polars",
        "UCASE(S) STRING: Python",
        "S STRING: Polars",
        "S = 'a' BOOLEAN: Polars",
    ]
    frame = pl.DataFrame({"x": pl.Series([1, None], dtype=pl.Int32), "y": ["a", None]})
    found = by_column(expressions, scope.errors, texts, frame)
    assert [column.items() for column in found] == [[2, None], ["A", None], ["a", None], [True, False]]
    assert scope.errors.counts == {"I + 1": 1}


def test_constants_have_as_many_rows_as_the_frame():
    scope = Rows("I INT")
    (column,) = by_column([scope.typed("'x'")], scope.errors, ["X"], pl.DataFrame({"I": [1, 2, 3]}))
    assert column.items() == ["x", "x", "x"]


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
def test_nan_and_nulls_in_comparisons(operator):
    values = [math.nan, 0.0, -0.0, 1.5, math.inf, -math.inf, None]
    pairs = [(one, two) for one in values for two in values]
    scope = Rows("D DOUBLE, E DOUBLE")
    expression = scope.typed(f"D {operator} E")
    frame = pl.DataFrame(pairs, schema={"D": pl.Float64, "E": pl.Float64}, orient="row")
    (column,) = by_column([expression], scope.errors, ["X"], frame)
    by_row = compile_rows([expression], scope.errors)
    assert column.items() == [by_row(pair)[0] for pair in pairs]


ANY_NUMBER = st.recursive(
    st.sampled_from(["I", "J", "B", "C", "D", "E", "1", "0", "2.50", "1E0", "CAST(I AS DECIMAL(12, 2))", "LEN(S)"]),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/%"), inner),
        st.builds("ABS({})".format, inner),
        st.builds("COALESCE({}, {})".format, inner, inner),
        st.builds("CAST({} AS {})".format, inner, st.sampled_from(["INT", "BIGINT", "DOUBLE", "DECIMAL(20, 3)"])),
        st.builds("(CASE WHEN {} < {} THEN I ELSE J END)".format, inner, inner),
        st.builds("ARRAY[{}, I][1]".format, inner),
        st.builds("GREATEST({}, 3)".format, inner),
    ),
    max_leaves=6,
)
ANY_CONDITION = st.recursive(
    st.one_of(
        st.builds("{} {} {}".format, ANY_NUMBER, SIGNS, ANY_NUMBER),
        st.builds("{} IS {}NULL".format, ANY_NUMBER, st.sampled_from(["", "NOT "])),
        st.builds("I IS {}DISTINCT FROM {}".format, st.sampled_from(["", "NOT "]), ANY_NUMBER),
        st.builds("S {} T".format, SIGNS),
        st.builds("{} IN (1, B, NULL)".format, st.sampled_from(["I", "B"])),
        st.builds("S {}LIKE {}".format, st.sampled_from(["", "NOT "]), st.sampled_from(["T", "'a%'", "UCASE(T)"])),
        st.sampled_from(["P", "Q", "P AND Q", "NOT P", "P IS NULL", "CAST(S AS BOOLEAN)"]),
    ),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner)
        | st.builds("(NOT ({}))".format, inner)
    ),
    max_leaves=4,
)
ANY_TEXT = st.sampled_from(
    [
        "S + CAST(I AS STRING)",
        "UCASE(S)",
        "S || T",
        "SUBSTRING(S, 2)",
        "CAST(D AS STRING)",
        "IFNULL(S, T)",
        "TRIM(S) + T",
    ]
)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(ANY_NUMBER | ANY_CONDITION | ANY_TEXT | EXPRESSIONS, min_size=1, max_size=3), ROWS)
def test_columns_equal_rows_whatever_the_back_end(texts, rows):
    scope = Rows(DECLARED)
    expressions = []
    for text in texts:
        try:
            expressions.append(scope.typed(text))
        except SqlError:
            assume(False)
    names = [f"C{at}" for at in range(len(expressions))]
    frame = pl.DataFrame({str(at): pl.Series([row[at] for row in rows], dtype=kind) for at, kind in enumerate(DTYPES)})
    python, polars = EvaluationErrors(), EvaluationErrors()
    by_row = [compile_rows(expressions, python, names)(row) for row in rows]
    columns = by_column(expressions, polars, names, frame)
    for at, column in enumerate(columns):
        assert shown(column.items()) == shown(row[at] for row in by_row), texts[at]
    assert polars.counts == python.counts


@settings(max_examples=examples(300), deadline=None)
@given(ANY_CONDITION | CONDITIONS, ROWS)
def test_a_condition_keeps_the_rows_that_it_is_true_for(text, rows):
    scope = Rows(DECLARED)
    try:
        expression = scope.typed(text)
    except SqlError:
        assume(False)
    keeps = compile_predicate(expression, EvaluationErrors())
    values = compile_rows([expression], EvaluationErrors())
    assert [keeps(row) for row in rows] == [values(row)[0] is True for row in rows]
