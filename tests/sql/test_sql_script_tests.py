"""Tests of users: files of statements with ASSERT, cases as JSON, the command that runs them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import SqlError
from penstock.sql.testing import load_script_tests, run_script_test

SOURCE = "CREATE STREAM clicks (id INT KEY, page STRING, ms DOUBLE) WITH (kafka_topic='clicks', value_format='JSON');\n"
ROWS = (
    "INSERT INTO clicks (ROWTIME, id, page, ms) VALUES (10, 1, '/', 1.5);\nINSERT INTO clicks VALUES (2, '/a', 2.5);\n"
)
COPY = "CREATE STREAM slow AS SELECT id, page, ms * 2 AS twice FROM clicks WHERE ms > 1;\n"
WINDOWED = "CREATE TABLE w AS SELECT page, COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 SECOND) GROUP BY page;\n"
COUNTS = "CREATE TABLE counts AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page HAVING COUNT(*) < 2;\n"


def reasons(tmp_path, text, name="case.sql"):
    path = tmp_path / name
    path.write_text(text)
    return [run_script_test(test).reason for test in load_script_tests(path)]


@pytest.mark.parametrize(
    "statements",
    [
        COPY + ROWS + "ASSERT VALUES slow (ROWTIME, id, page, twice) VALUES (10, 1, '/', 3.0);",
        ROWS + COPY + "ASSERT VALUES slow (id) VALUES (1); ASSERT VALUES slow (id, twice) VALUES (2, 5);",
        COPY + ROWS + "ASSERT VALUES slow VALUES (1, '/', 3.0); ASSERT VALUES clicks (page) VALUES ('/');",
        COUNTS + ROWS + "ASSERT VALUES counts (page, n) VALUES ('/', 1); ASSERT VALUES counts (n) VALUES (1);",
        COUNTS
        + ROWS
        + "INSERT INTO clicks (id, page) VALUES (3, '/');"
        + "ASSERT VALUES counts (page) VALUES ('/'); ASSERT VALUES counts (page) VALUES ('/a');"
        + "ASSERT NULL VALUES counts (page) KEY ('/');",
        COPY + "ASSERT STREAM slow (id INT KEY, page STRING, twice DOUBLE);",
        COPY + "ASSERT STREAM slow WITH (kafka_topic='SLOW', value_format='JSON', key_format='KAFKA');",
        COUNTS + "ASSERT TABLE counts (page STRING PRIMARY KEY, n BIGINT); ASSERT TOPIC clicks;",
        "ASSERT NOT EXISTS TOPIC nothing;",
        COPY
        + "CREATE STREAM b AS SELECT id, twice + 1 AS more FROM slow;"
        + ROWS
        + "ASSERT VALUES b (more) VALUES (4.0);",
        WINDOWED
        + "INSERT INTO clicks (ROWTIME, id, page) VALUES (1500, 1, '/');"
        + "ASSERT VALUES w (WINDOWSTART, WINDOWEND, page, n) VALUES (1000, 2000, '/', 1);",
        "SET 'auto.offset.reset' = 'latest';"
        + ROWS
        + COPY
        + "INSERT INTO clicks VALUES (9, 'x', 9);"
        + "ASSERT VALUES slow (id) VALUES (9);",
        COPY + "DROP STREAM slow;" + ROWS + "ASSERT VALUES clicks (id) VALUES (1);",
        "DEFINE page = '/home'; INSERT INTO clicks VALUES (1, '${page}', 1); ASSERT VALUES clicks (page) VALUES ('/home');",
    ],
)
def test_what_holds_passes(tmp_path, statements):
    assert reasons(tmp_path, SOURCE + statements) == [""]


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ("ASSERT VALUES slow (id) VALUES (7);", "line 8:1: The next record of SLOW has ID = 1, not ID = 7."),
        ("ASSERT VALUES slow (page, id) VALUES (NULL, 1);", "has PAGE = /, not PAGE = NULL."),
        ("ASSERT VALUES slow (ROWTIME) VALUES (11);", "has ROWTIME = 10, not ROWTIME = 11."),
        ("ASSERT VALUES slo (id) VALUES (1);", "SLO does not exist.\n  ASSERT VALUES slo"),
        ("ASSERT VALUES slow (idd) VALUES (1);", "SLOW has no column IDD."),
        ("ASSERT VALUES slow (id) VALUES (1, 2);", "There are 1 columns and 2 values."),
        (
            "ASSERT NULL VALUES slow (id) KEY (1);",
            "is not a tombstone, but ROWTIME = 10, ID = 1, PAGE = /, TWICE = 3.0.",
        ),
        ("ASSERT STREAM slow (id INT KEY);", "SLOW has the columns `ID` INTEGER KEY, `PAGE` STRING, `TWICE` DOUBLE."),
        ("ASSERT TABLE slow;", "SLOW is a STREAM, not a TABLE."),
        ("ASSERT STREAM slow WITH (kafka_topic='s', value_format='JSON');", "has KAFKA_TOPIC SLOW, not s."),
        ("ASSERT TOPIC nothing;", "Topic nothing does not exist."),
        ("ASSERT SCHEMA SUBJECT 'x';", "ASSERT SCHEMA is not part of tests."),
        ("SELECT * FROM clicks;", "a SELECT alone"),
        ("CREATE STREAM x AS SELECT nothing FROM clicks;", "SELECT names the column 'NOTHING'"),
        ("ASSERT VALUE slow", "syntax error"),
        ("RUN SCRIPT 'case.sql';", "RUN SCRIPT of case.sql would never end."),
        ("RUN SCRIPT 'none.sql';", "none.sql cannot be read"),
    ],
)
def test_what_does_not_hold_fails_with_its_place(tmp_path, statements, reason):
    lines = SOURCE + "\n" + COPY + ROWS + "\n\n" + statements
    (found,) = reasons(tmp_path, lines)
    assert reason in found
    assert found.startswith("line 8:")
    assert "^" in found


def test_records_run_out(tmp_path):
    (found,) = reasons(tmp_path, SOURCE + COPY + "ASSERT VALUES slow (id) VALUES (1);")
    assert "SLOW has no further record: 0 were taken of 0." in found


def test_a_file_has_several_tests_of_which_each_begins_anew(tmp_path):
    text = f"""--@test: the first
{SOURCE}{ROWS}ASSERT VALUES clicks (id) VALUES (1);
----------------------------
--@test: a refusal
--@expected.error: any
--@expected.message: names the column 'NOTHING'
----------------------------
{SOURCE}CREATE STREAM x AS SELECT nothing FROM clicks;
--@test: another refusal
--@expected.message: something else
{SOURCE}CREATE STREAM x AS SELECT nothing FROM clicks;
--@test: no refusal
--@expected.error: any
{SOURCE}
--@test: a failed assertion is not a refusal
--@expected.error: any
{SOURCE}ASSERT TABLE clicks;
"""
    path = tmp_path / "all.sql"
    path.write_text(text)
    outcomes = {test.name: run_script_test(test).reason for test in load_script_tests(path)}
    assert outcomes["the first"] == ""
    assert outcomes["a refusal"] == ""
    assert outcomes["another refusal"].startswith("the message does not have 'something else':\nline 1")
    assert outcomes["no refusal"] == "no statement was refused"
    assert "CLICKS is a STREAM, not a TABLE." in outcomes["a failed assertion is not a refusal"]


def test_a_script_in_another_file(tmp_path):
    (tmp_path / "source.sql").write_text(SOURCE)
    assert reasons(tmp_path, "RUN SCRIPT 'source.sql';" + COPY + ROWS + "ASSERT VALUES slow (id) VALUES (1);") == [""]


def test_queries_that_feed_each_other_are_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.sql.testing.engine.MAX_PASSED", 100)
    loop = "INSERT INTO clicks SELECT id, page, twice AS ms FROM slow;"
    (found,) = reasons(tmp_path, SOURCE + COPY + loop + ROWS)
    assert "records follow from one row" in found


def test_tombstones_and_joins_of_tables(tmp_path):
    script = """
CREATE TABLE people (id INT PRIMARY KEY, name STRING, town INT) WITH (kafka_topic='p', format='JSON', partitions=1);
CREATE TABLE towns (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='t', format='JSON', partitions=1);
CREATE TABLE lives AS SELECT p.id AS id, p.name AS who, t.name AS town FROM people p JOIN towns t ON p.town = t.id;
INSERT INTO people VALUES (1, 'ann', 7);
INSERT INTO towns VALUES (7, 'Oslo');
INSERT INTO people (id) VALUES (1);
ASSERT VALUES lives (id, who, town) VALUES (1, 'ann', 'Oslo');
ASSERT NULL VALUES lives (id) KEY (1);
"""
    assert reasons(tmp_path, script) == [""]


run = CliRunner().invoke
GOOD, BAD = SOURCE + ROWS + "ASSERT VALUES clicks (id) VALUES (1);", SOURCE + "ASSERT TABLE clicks;"


def test_the_command_runs_files_and_folders(tmp_path):
    (tmp_path / "good.sql").write_text(GOOD)
    (tmp_path / "bad.sql").write_text(BAD)
    found = run(app, ["sql", "test", str(tmp_path)])
    assert found.exit_code == 1
    assert "1 passed, 1 failed" in found.output
    assert "line 2:1: CLICKS is a STREAM, not a TABLE." in found.output
    assert run(app, ["sql", "test", str(tmp_path), "-k", "good"]).exit_code == 0
    shown = json.loads(run(app, ["sql", "test", str(tmp_path), "--json"]).output)
    assert [each["passed"] for each in shown["tests"]] == [False, True]


CASE = {
    "name": "doubles",
    "statements": [SOURCE, "CREATE STREAM b AS SELECT id, ms * 2 AS twice FROM clicks;"],
    "inputs": [{"topic": "clicks", "key": 1, "value": {"ms": 2}}],
    "outputs": [{"topic": "B", "key": 1, "value": {"TWICE": 4.0}}],
}


def test_cases_of_ksqldb_and_files_of_its_runner(tmp_path):
    wrong = {**CASE, "name": "wrong", "outputs": [{"topic": "B", "key": 1, "value": {"TWICE": 5.0}}]}
    (tmp_path / "cases.json").write_text(json.dumps({"tests": [CASE, wrong]}))
    found = run(app, ["sql", "test", str(tmp_path / "cases.json")])
    assert "1 passed, 1 failed" in found.output
    assert "B, record 0: value.TWICE is 4.0, not 5.0" in found.output
    (tmp_path / "s.sql").write_text("\n".join(CASE["statements"]))
    for part in ("inputs", "outputs"):
        (tmp_path / f"{part}.data").write_text(json.dumps({part: CASE[part]}))
    paths = [str(tmp_path / name) for name in ("s.sql", "inputs.data", "outputs.data")]
    assert "1 passed" in run(app, ["sql", "test", paths[0], "-i", paths[1], "-o", paths[2]]).output


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "has no list 'tests'"),
        ('{"tests": [{}]}', "test 1 has no name"),
        ('{"tests": [{"name": "x", "statements": "y"}]}', "has no list of statements"),
        ('{"tests": [{"name": "x", "statements": [], "inputs": [{}]}]}', "one of its inputs names no topic"),
    ],
)
def test_files_that_are_no_cases(tmp_path, text, reason):
    (tmp_path / "cases.json").write_text(text)
    found = run(app, ["sql", "test", str(tmp_path / "cases.json")])
    assert isinstance(found.exception, SqlError)
    assert reason in str(found.exception)


def test_functions_of_the_user_are_loaded(tmp_path):
    (tmp_path / "own_functions.py").write_text(
        "from penstock.sql.functions import udf\n\n@udf\ndef thrice(v: int) -> int:\n    return 3 * v\n"
    )
    script = SOURCE + "CREATE STREAM b AS SELECT id, THRICE(id) AS x FROM clicks;" + ROWS
    (tmp_path / "own.sql").write_text(script + "ASSERT VALUES b (x) VALUES (3);")
    found = run(app, ["sql", "test", str(tmp_path / "own.sql"), "--functions", str(tmp_path / "own_functions.py")])
    assert found.exit_code == 0, found.output


def test_format_prints_checks_and_writes(tmp_path):
    path = tmp_path / "a.sql"
    path.write_text("-- why\nselect a,b from s where a>1 emit changes;")
    formatted = "-- why\nSELECT A, B\nFROM S\nWHERE A > 1\nEMIT CHANGES;\n"
    assert run(app, ["sql", "format", str(path)]).output == formatted
    checked = run(app, ["sql", "format", "--check", str(path)])
    assert checked.exit_code == 1
    assert "+WHERE A > 1" in checked.output
    assert run(app, ["sql", "format", "--write", str(path)]).exit_code == 0
    assert path.read_text() == formatted
    assert run(app, ["sql", "format", "--check", str(path)]).exit_code == 0
    path.write_text("selct 1;")
    found = run(app, ["sql", "format", "--write", str(path)])
    assert "a.sql: line 1:1" in str(found.exception)
    assert path.read_text() == "selct 1;"
