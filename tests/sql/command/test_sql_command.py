"""`penstock sql` with -e, with statements on its input, and its scripts; without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import PenstockError, SqlError

CLICKS = "CREATE STREAM clicks (id INT KEY, page STRING) WITH (kafka_topic='clicks', format='JSON', partitions=2)"
COUNTS = """
CREATE STREAM clicks (id INT KEY, page STRING) WITH (kafka_topic='clicks', format='JSON', partitions=2);
CREATE STREAM homes AS SELECT id, UCASE(page) AS p FROM clicks WHERE page LIKE '/h%';
CREATE TABLE counts AS SELECT p, COUNT(*) AS n FROM homes GROUP BY p;
"""


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def penstock(*arguments: str, given: str | None = None) -> Any:
    result = CliRunner().invoke(app, ["sql", *arguments], input=given)
    if isinstance(result.exception, PenstockError):
        raise result.exception
    return result


def test_statements_in_an_empty_folder_make_the_log() -> None:
    shown = penstock("-e", CLICKS, "-e", "INSERT INTO clicks VALUES (1, '/a'); SHOW STREAMS;").stdout
    assert "Stream CLICKS created (topic clicks made)" in shown
    assert "Inserted a row into CLICKS" in shown
    assert "CLICKS" in shown.splitlines()[-1]
    assert Path("penstock.db").exists()
    assert "/a" in penstock("-e", "PRINT clicks FROM BEGINNING LIMIT 1").stdout


def test_statements_come_from_the_input_too() -> None:
    assert "Stream CLICKS created" in penstock(given=f"{CLICKS};\nSHOW TOPICS;").stdout


def test_json_is_one_line_for_each_row() -> None:
    penstock("-e", CLICKS)
    lines = penstock("--json", "-e", "SHOW STREAMS; DESCRIBE clicks;").stdout.splitlines()
    assert json.loads(lines[0])["Stream"] == "CLICKS"
    assert json.loads(lines[1])["columns"][0] == {"name": "ID", "type": "INTEGER", "role": "key"}


def test_an_error_shows_its_line_and_a_caret() -> None:
    with pytest.raises(SqlError) as raised:
        penstock("-e", "\nDESCRIBE clicks;")
    assert raised.value.message.splitlines()[-1].strip() == "^"


def test_a_script_is_explained_as_one_topology_and_makes_nothing() -> None:
    Path("shop.sql").write_text(COUNTS)
    shown = penstock("explain", "shop.sql").stdout
    assert "(topic: HOMES)" in shown
    assert "(topics: [HOMES])" in shown
    assert "CTAS_COUNTS_1: CREATE TABLE counts AS" in shown
    assert "UCASE(CLICKS.PAGE)  STRING" in shown
    assert "no rows" in penstock("-e", "SHOW TOPICS").stdout


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SHOW STREAMS;", "takes no such statement"),
        (CLICKS + ";", "has no query"),
        ("SELCT 1;", "SELECT"),
        (
            COUNTS + "SET 'auto.offset.reset' = 'latest'; CREATE STREAM late AS SELECT * FROM clicks;",
            "auto.offset.reset",
        ),
    ],
)
def test_a_script_that_cannot_be_an_application_is_refused(text: str, reason: str) -> None:
    Path("shop.sql").write_text(text)
    with pytest.raises(SqlError) as raised:
        penstock("run", "shop.sql")
    assert reason in f"{raised.value.message} {raised.value.hint}"


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(PenstockError, match=r"nowhere.sql cannot be read"):
        penstock("run", "nowhere.sql")


def test_an_export_makes_the_same_catalog_elsewhere() -> None:
    script = (
        f"CREATE TYPE point AS STRUCT<x INT>; {CLICKS}; ALTER STREAM clicks ADD COLUMN z point;"
        "CREATE STREAM gone (a INT) WITH (kafka_topic='gone', format='JSON', partitions=1); DROP STREAM gone;"
    )
    penstock("-e", script)
    exported = penstock("export").stdout
    assert "gone" not in exported
    penstock("--bootstrap-servers", "other.db", "-e", exported)
    assert penstock("export", "--bootstrap-servers", "other.db").stdout == exported
    assert "Z" in penstock("--bootstrap-servers", "other.db", "-e", "DESCRIBE clicks").stdout
