"""Scripts: places, comments, variables."""

import pytest

from penstock.errors import SqlSyntaxError
from penstock.sql.parse import TextPosition, format_script, parse_expression, parse_script, parse_statement, substitute
from penstock.sql.parse.tokens import NOWHERE

SCRIPT = """-- the source
CREATE STREAM s (a INT) WITH (kafka_topic='s');;

/* two
lines */ DROP /* inner */ STREAM s; -- behind
SELECT * FROM t"""


def test_statements_have_their_text_and_place():
    first, second, third = parse_script(SCRIPT)
    assert first.text == "CREATE STREAM s (a INT) WITH (kafka_topic='s')"
    assert first.at == TextPosition(2, 1, SCRIPT.index("CREATE"))
    assert second.at == TextPosition(5, 10, SCRIPT.index("DROP"))
    assert third.statement.source.at == TextPosition(6, 15, SCRIPT.index("t", -1))


def test_comments_stand_before_their_statement_when_a_script_is_formatted():
    expected = """-- the source
CREATE STREAM S (A INT) WITH (KAFKA_TOPIC = 's');

/* two
lines */
/* inner */
DROP STREAM S;

-- behind
SELECT *
FROM T;"""
    assert format_script(parse_script(SCRIPT)) == expected


def test_nodes_are_equal_wherever_they_stand():
    near, far = parse_expression("a + 1"), parse_expression("\n\n   a   + 1")
    assert near == far
    assert hash(near) == hash(far)
    assert near.at != far.at != NOWHERE


def test_variables_hold_from_their_definition_on():
    script = parse_script("DEFINE t = 'one'; SELECT '${T}' FROM ${t}; UNDEFINE t; SELECT '${t}' FROM s;")
    assert script[1].statement == parse_statement("SELECT 'one' FROM one")
    assert script[3].statement == parse_statement("SELECT '${t}' FROM s")
    with pytest.raises(SqlSyntaxError, match=r"found \$\{t\}\n(.|\n)*Hint: The variable t has no value"):
        parse_script("DEFINE t = 'one'; UNDEFINE t; SELECT 1 FROM ${t};")


def test_a_variable_can_be_a_part_of_a_name_and_cannot_add_a_statement():
    assert parse_statement("DROP STREAM s_${env}", {"ENV": "test"}) == parse_statement("DROP STREAM s_test")
    with pytest.raises(SqlSyntaxError, match="expected DELETE or ';', found ;"):
        parse_statement("DROP STREAM ${name}", {"NAME": "s; DROP STREAM t"})


def test_an_escaped_reference_stays():
    assert substitute("$${a} ${a} ${b} $a", {"A": "1"}) == "${a} 1 ${b} $a"


def test_an_error_names_the_place_in_the_whole_script():
    with pytest.raises(SqlSyntaxError) as caught:
        parse_script("DROP STREAM a;\nDROP STREAM b;\r\n  DROP STREEM c;\nDROP STREAM d;")
    assert (caught.value.line, caught.value.column, caught.value.found) == (3, 8, "STREEM")
    assert caught.value.expected == ("TYPE", "CONNECTOR", "STREAM", "TABLE")
    assert "\n    DROP STREEM c;\n         ^\nHint: Did you mean STREAM?" in str(caught.value)


def test_a_place_behind_a_variable_counts_lines_on():
    with pytest.raises(SqlSyntaxError, match=r"^line 3:6: ") as caught:
        parse_script("\n\nDROP ABC ${x};", {"X": "s"})
    assert "DROP ABC s" in str(caught.value)


def test_statements_of_test_files_are_their_own():
    assert parse_statement("RUN SCRIPT 'x'", tests=True).path == "x"
    with pytest.raises(SqlSyntaxError, match="unknown statement RUN"):
        parse_statement("RUN SCRIPT 'x'")
