"""What holds for all texts and trees."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sql_trees import expressions, types

from examples import examples
from penstock.errors import SqlSyntaxError
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import (
    format_expression,
    format_script,
    format_statement,
    format_type,
    parse_expression,
    parse_script,
    parse_statement,
)
from penstock.sql.parse.expression_nodes import children

SOUP = [
    "CREATE",
    "STREAM",
    "TABLE",
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "PARTITION",
    "HAVING",
    "EMIT",
    "CHANGES",
    "FINAL",
    "LIMIT",
    "OFFSET",
    "ORDER",
    "AS",
    "WITH",
    "WITHIN",
    "GRACE",
    "PERIOD",
    "JOIN",
    "LEFT",
    "OUTER",
    "ON",
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS",
    "NULL",
    "LIKE",
    "BETWEEN",
    "ESCAPE",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "CAST",
    "ARRAY",
    "MAP",
    "STRUCT",
    "WINDOW",
    "TUMBLING",
    "SIZE",
    "HOPPING",
    "ADVANCE",
    "SESSION",
    "INSERT",
    "INTO",
    "VALUES",
    "DROP",
    "ALTER",
    "ADD",
    "COLUMN",
    "TYPE",
    "SHOW",
    "DESCRIBE",
    "EXPLAIN",
    "PRINT",
    "SET",
    "UNSET",
    "DEFINE",
    "UNDEFINE",
    "ASSERT",
    "TOPIC",
    "SCHEMA",
    "SUBJECT",
    "ID",
    "TIMEOUT",
    "IF",
    "EXISTS",
    "REPLACE",
    "SOURCE",
    "CONNECTOR",
    "KEY",
    "PRIMARY",
    "HEADER",
    "HEADERS",
    "RUN",
    "SCRIPT",
    "5",
    "SECONDS",
    "1.5",
    "1E3",
    "'text'",
    "a",
    "b",
    "c",
    "INT",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    "<>",
    "=",
    "->",
    "=>",
    ":=",
    "+",
    "-",
    "*",
    "/",
    "%",
    ",",
    ".",
    ";",
    "${v}",
    "`q`",
    "--",
    "/*",
    "*/",
    "'",
    "`",
    '"',
    "$",
    "?",
    "é",
    "1a",
]
soup = st.lists(st.sampled_from(SOUP), max_size=25).map(" ".join)


@settings(max_examples=examples(400))
@given(expressions)
@example(x.Unary("-", x.IntegerLiteral(1)))
@example(x.Unary("-", x.Unary("-", x.ColumnNode("A"))))
@example(x.Subscript(x.IntegerLiteral(-1), x.IntegerLiteral(1)))
@example(x.Unary("-", x.Subscript(x.IntegerLiteral(1), x.IntegerLiteral(1))))
@example(x.ComparisonNode("=", x.NotNode(x.ColumnNode("A")), x.ColumnNode("B")))
def test_an_expression_that_is_written_is_read_as_the_same(tree):
    text = format_expression(tree)
    read = parse_expression(text)
    assert read == tree
    assert format_expression(read) == text


@given(types)
def test_a_type_that_is_written_is_read_as_the_same(tree):
    read = parse_expression(f"CAST(A AS {format_type(tree)})")
    assert read == x.CastNode(x.ColumnNode("A"), tree)


def outcome(text):
    """The statements, or None if the text is refused, in which case the error names a place in it."""
    try:
        return parse_script(text, {"V": "w"}, tests=True)
    except SqlSyntaxError as found:
        error = found
    assert error.line >= 1
    assert error.column >= 1
    assert error.offset <= len(text)
    assert str(error).startswith(f"line {error.line}:{error.column}: syntax error: ")
    return None


@settings(max_examples=examples(500))
@given(soup)
def test_token_soup_is_read_or_refused_with_a_place(text):
    if script := outcome(text):
        assert [p.statement for p in parse_script(format_script(script), tests=True)] == [p.statement for p in script]


@settings(max_examples=examples(300))
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_place(text):
    outcome(text)


WHOLE = """
CREATE OR REPLACE TABLE t WITH (kafka_topic='x', partitions=3) AS SELECT a, COUNT(*) AS n, s->b[1] c, TRANSFORM(l, (x, y) => x + y)
FROM one o LEFT JOIN two ON o.id = two.id AND o.k <> 'a' WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 5 MINUTES, GRACE PERIOD 1 DAY)
WHERE CASE WHEN x IS NOT NULL THEN y IN (1, -2.5) ELSE NOT z LIKE 'a%' ESCAPE '!' END GROUP BY a HAVING COUNT(*) > 1E0 EMIT FINAL;
"""


@settings(max_examples=examples(300))
@given(st.data())
def test_a_statement_with_a_token_missing_or_doubled_is_read_or_refused(data):
    words = WHOLE.split()
    place = data.draw(st.integers(0, len(words) - 1))
    other = data.draw(st.sampled_from([[], [words[place]] * 2, [data.draw(st.sampled_from(SOUP))]]))
    outcome(" ".join([*words[:place], *other, *words[place + 1 :]]))


@pytest.mark.parametrize("begin", range(0, len(WHOLE), 3))
def test_a_statement_that_is_cut_off_is_read_or_refused(begin):
    outcome(WHOLE[:begin])
    outcome(WHOLE[begin:])


DEEP = {
    "brackets": "(" * 5000 + "1" + ")" * 5000,
    "open brackets": "(" * 5000,
    "signs": "- + " * 5000 + "a",
    "negations": "NOT " * 5000 + "a",
    "subscripts": "a[" * 5000 + "1" + "]" * 5000,
    "calls": "f(" * 5000 + "1" + ")" * 5000,
    "lambdas": "f(x => " * 5000 + "1" + ")" * 5000,
    "cases": "CASE WHEN " * 5000 + "a" + " THEN 1 END" * 5000,
    "casts": "CAST(" * 5000 + "1" + " AS INT)" * 5000,
    "types": "CAST(a AS " + "ARRAY<" * 5000 + "INT" + ">" * 5000 + ")",
    "structs": "STRUCT(a := " * 5000 + "1" + ")" * 5000,
    "a long sum": "+".join(["a"] * 5000),
    "a long path": "a" + "->b" * 5000,
    "long subscripts": "a" + "[1]" * 5000,
    "a sum in brackets in sums": "+".join(["(" * 50 + "+".join(["a"] * 150) + ")" * 50] * 150),
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_what_is_too_deep_is_refused(text):
    with pytest.raises(SqlSyntaxError, match="levels"):
        parse_expression(text)
    with pytest.raises(SqlSyntaxError, match="levels"):
        parse_statement(f"SELECT {text} FROM t;")


def test_deep_queries_and_explanations_are_refused():
    with pytest.raises(SqlSyntaxError, match="levels"):
        parse_statement("SELECT * FROM (" * 3000 + "SELECT * FROM t" + ") AS x" * 3000)
    with pytest.raises(SqlSyntaxError, match="levels"):
        parse_statement("EXPLAIN " * 3000 + "SELECT * FROM t")
    with pytest.raises(SqlSyntaxError, match="levels"):
        parse_statement("WITH x AS (" * 3000 + "SELECT * FROM t")


def test_long_conditions_are_no_deep_ones():
    text = " AND ".join(f"A <> {n}" for n in range(5000))
    assert format_expression(parse_expression(text)) == text


def test_the_deepest_trees_can_be_walked():
    text = "SELECT " + "+".join(["A"] * 150) + " FROM (" + "SELECT * FROM (" * 70 + "SELECT " + "(" * 3 + "1" + ")" * 3
    node = parse_statement(text + " FROM T" + ") AS X" * 71)
    assert parse_statement(format_statement(node)) == node
    assert hash(node) == hash(parse_statement(format_statement(node)))
    assert repr(node)
    assert sum(1 for _ in children(node)) == 2


def test_a_text_that_is_too_long_is_refused():
    with pytest.raises(SqlSyntaxError, match="at most 4,000,000 are read"):
        parse_script(" " * 4_000_001)
