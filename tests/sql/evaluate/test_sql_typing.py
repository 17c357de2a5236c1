"""Expressions that are refused, with their place and reason; parts of parsed expressions."""

from __future__ import annotations

import pytest
from sql_rows import Rows

from penstock.errors import SqlError
from penstock.sql.evaluate import aggregates_in, columns_in, sql_type, substitute
from penstock.sql.parse import format_expression, parse_expression

COLUMNS = "A INT, T STRING, L ARRAY<INT>, M MAP<STRING, INT>, S STRUCT<F INT>, D DATE, K TIME, AT TIMESTAMP, X DOUBLE"
REFUSED = {
    "NULL = NULL": "NULL cannot be compared: NULL = NULL",
    "A + 1 = NULL": "NULL cannot be compared: A + 1 = NULL",
    "L < L": "LESS_THAN does not compare L (ARRAY<INTEGER>) and L (ARRAY<INTEGER>).",
    "A >= 'x'": "GREATER_THAN_OR_EQUAL does not compare A (INTEGER) and 'x' (STRING).",
    "K = AT": "EQUAL does not compare K (TIME) and AT (TIMESTAMP).",
    "TRUE + 1.5": "Arithmetic does not take BOOLEAN and DECIMAL",
    "A IN (10, T)": "= does not compare INTEGER with STRING, the type of T",
    "A IN (10, 'x')": 'the text "x" is not a value of type INTEGER',
    "TRUE IN (10)": "= does not compare BOOLEAN with INTEGER, the type of 10",
    "TRUE IN ('maybe')": 'the text "maybe" is not a value of type BOOLEAN',
    "T IN (X)": "= does not compare STRING with DOUBLE, the type of X",
    "L IN (ARRAY['10', 'not 10'])": 'the text "not 10" is not a value of type INTEGER',
    "L IN (ARRAY_LENGTH(L))": "= does not compare ARRAY<INTEGER> with INTEGER, the type of ARRAY_LENGTH(L)",
    "ARRAY[]": "constructor of an ARRAY is empty",
    "ARRAY[NULL]": "All elements of the ARRAY are NULL",
    "ARRAY[1, 'x']": 'the text "x" is not a value of type INTEGER',
    "MAP()": "constructor of a MAP is empty",
    "MAP('a' := NULL)": "Cannot construct a map with all NULL values",
    "CASE WHEN A = 1 THEN NULL END": "Every branch of this CASE is NULL",
    "CASE WHEN A = 1 THEN 1 ELSE 'x' END": "Type for the default clause should be the same",
    "CASE WHEN A = 1 THEN 1 WHEN A = 2 THEN 2147483648 END": "'THEN' clauses of several types",
    "CASE WHEN A THEN 1 END": "WHEN must be BOOLEAN, and A is INTEGER",
    "CAST(T AS MAP<STRING, INT>)": "No CAST turns STRING into MAP<STRING, INTEGER>",
    "CAST(T AS NOWHERE)": "Cannot resolve unknown type: NOWHERE",
    "CAST(T AS DECIMAL(2, 3))": "DECIMAL precision must be >= scale",
    "A->B": "only structs have fields",
    "S->G": "Could not find field 'G' in 'S'",
    "A[1]": "only arrays and maps take an index",
    "L['x']": "which takes no index of STRING",
    "M[1]": "which takes no index of INTEGER",
    "NOWHERE(1)": "No function has the name 'NOWHERE'",
    "UCASE(1)": "Function 'UCASE' has no signature for the parameters (INTEGER)",
    "DATEADD(D, 5, D)": "has no signature for the parameters (DATE, INTEGER, DATE)",
    "GREATEST(*)": "has no signature for the parameters ()",
    "NOT A": "must be BOOLEAN",
    "A AND TRUE": "must be BOOLEAN",
    "A LIKE 'x'": "LIKE takes STRING",
    "-T": "The sign - does not take STRING",
    "Z + 1": "Unknown column Z",
    "TRANSFORM(L, X => Y)": "Unknown column Y",
    "TRANSFORM(L, (X, Y) => X)": "has no signature for the parameters",
    "REDUCE(L, 0, (X, X) => X)": "two parameters of one name",
    "ROWTIME > 'x'": "Failed to parse timestamp 'x'",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text):
    with pytest.raises(SqlError) as raised:
        Rows(COLUMNS + ", ROWTIME BIGINT").typed(text)
    assert REFUSED[text] in str(raised.value)


def test_a_refusal_names_the_place():
    with pytest.raises(SqlError) as raised:
        Rows(COLUMNS).typed("A = 1 AND\n  UCASE(A) = 'x'")
    assert str(raised.value).startswith("line 2:3: Function 'UCASE'")
    assert (raised.value.facts["line"], raised.value.facts["column"]) == (2, 3)


def test_custom_types():
    node = parse_expression("CAST(A AS ARRAY<ADDRESS>)").type
    assert str(sql_type(node, {"ADDRESS": sql_type(parse_expression("CAST(A AS INT)").type)})) == "ARRAY<INTEGER>"


def test_aggregates_are_found_and_replaced():
    parsed = parse_expression("CASE WHEN SUM(A) > 1 THEN TOPK(B, 2)[1] ELSE COUNT(*) + sum(a) END")
    found = aggregates_in(parsed)
    assert [format_expression(call) for call in found] == ["SUM(A)", "TOPK(B, 2)", "COUNT(*)"]
    columns = {call: parse_expression(f"AGG_{number}") for number, call in enumerate(found)}
    shown = format_expression(substitute(parsed, columns))
    assert shown == "CASE WHEN AGG_0 > 1 THEN AGG_1[1] ELSE AGG_2 + AGG_0 END"


def test_substituted_parts_keep_their_place():
    found = substitute(parse_expression("1 + SUM(A)"), {parse_expression("SUM(A)"): parse_expression("B")})
    assert (found.right.name, found.right.at.column) == ("B", 5)


def test_columns_of_an_expression():
    found = columns_in(parse_expression("A + REDUCE(L, 0, (S, A) => S + A + B) + T.S + A"))
    assert [(column.source, column.name) for column in found] == [(None, "A"), (None, "L"), (None, "B"), ("T", "S")]
