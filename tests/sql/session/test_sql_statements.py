"""The statements that ask and check: SHOW, DESCRIBE, EXPLAIN, PRINT, ASSERT, RUN SCRIPT, SET, DEFINE."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SqlError
from penstock.sql.results import Described, Explained, Listing, Stream
from penstock.sql.session import SqlSession

MADE = """
CREATE STREAM clicks (id INT KEY, page STRING) WITH (kafka_topic='clicks', format='JSON', partitions=2);
CREATE TABLE pages AS SELECT page, COUNT(*) AS n FROM clicks WHERE id > 3 GROUP BY page;
"""


@pytest.fixture
def session(tmp_path: Path) -> Iterator[SqlSession]:
    with SqlSession({"bootstrap.servers": str(tmp_path / "log.db")}, queries="wait", scripts=True) as made:
        made.execute(MADE)
        yield made


def one(session: SqlSession, text: str) -> Any:
    return session.execute(text)[-1]


@pytest.mark.parametrize(
    ("statement", "first"),
    [
        ("SHOW STREAMS;", ("CLICKS", "clicks", "JSON", "JSON", "no")),
        ("LIST TABLES;", ("PAGES", "PAGES", "JSON", "JSON", "no")),
        ("SHOW TOPICS;", ("PAGES", 2)),
        ("SHOW TOPICS EXTENDED;", ("PAGES", 2, 0, "PAGES")),
        ("SHOW FUNCTIONS;", ("ABS", "maths")),
        ("CREATE TYPE p AS STRUCT<x INT>; SHOW TYPES;", ("P", "STRUCT<`X` INTEGER>")),
        ("DEFINE name = 'value'; SHOW VARIABLES;", ("NAME", "value")),
        ("DESCRIBE STREAMS;", ("CLICKS", "ID", "INTEGER", "key")),
    ],
)
def test_lists_have_what_there_is(session: SqlSession, statement: str, first: tuple[Any, ...]) -> None:
    found = one(session, statement)
    assert isinstance(found, Listing)
    assert found.rows[0] == first


def test_queries_are_listed_with_state_and_statement(session: SqlSession) -> None:
    (row,) = one(session, "SHOW QUERIES EXTENDED;").to_dicts()
    assert (row["Query"], row["State"], row["Writes"], row["Behind"]) == ("CTAS_PAGES_0", "CREATED", "PAGES", 0)
    assert row["Statement"].startswith("CREATE TABLE pages AS")


def test_internal_topics_are_listed_with_all(session: SqlSession) -> None:
    assert not [row for row in one(session, "SHOW TOPICS;").rows if row[0].startswith("_")]
    assert [row for row in one(session, "SHOW ALL TOPICS;").rows if row[0].startswith("_penstock")]


def test_passwords_are_masked_among_the_properties(tmp_path: Path) -> None:
    config = {"bootstrap.servers": str(tmp_path / "log.db"), "sasl.password": "geheim"}
    with SqlSession(config, queries="wait") as session:
        shown = {row[0]: row[1] for row in one(session, "SHOW PROPERTIES;").rows}
    assert shown["sasl.password"] == "***"


def test_a_description_has_columns_and_with_extended_the_queries(session: SqlSession) -> None:
    found = one(session, "DESCRIBE pages EXTENDED;")
    assert isinstance(found, Described)
    assert found.columns == (("PAGE", "STRING", "primary key"), ("N", "BIGINT", ""))
    assert dict(found.facts)["written by"] == "CTAS_PAGES_0 (CREATED, errors: none, 0 records behind)"
    assert dict(one(session, "DESCRIBE clicks EXTENDED;").facts)["read by"].startswith("CTAS_PAGES_0")


def test_a_function_is_described_with_its_signatures_and_an_example(session: SqlSession) -> None:
    found = one(session, "DESCRIBE FUNCTION ucase;")
    assert found.columns == (("UCASE(text STRING) STRING", "", ""),)
    assert dict(found.facts)["example"] == "UCASE('abc') is 'ABC'"


def test_a_plan_is_explained_with_its_topology_and_expressions(session: SqlSession) -> None:
    found = one(session, "EXPLAIN CTAS_PAGES_0;")
    assert isinstance(found, Explained)
    assert "topics: [clicks]" in found.topology
    assert "Sink" in found.topology
    assert ("CLICKS.ID > 3", "BOOLEAN", "Polars") in found.expressions
    assert found.plan["id"] == "CTAS_PAGES_0"


def test_to_explain_a_statement_does_not_run_it(session: SqlSession) -> None:
    found = one(session, "EXPLAIN CREATE STREAM big AS SELECT * FROM clicks WHERE id > 100;")
    assert "topics: [clicks]" in found.topology
    assert "BIG" not in session.catalog.sources
    assert list(session.queries) == ["CTAS_PAGES_0"]


@pytest.mark.parametrize(
    ("query", "expression", "fact"),
    [
        ("SELECT id * 2 AS twice FROM clicks", "CLICKS.ID * 2", "a stream up to its present end"),
        ("SELECT COUNT(*) FROM clicks EMIT CHANGES", "KSQL_AGG_VARIABLE_0", "push query: rows as they come"),
        ("SELECT n + 1 AS more FROM pages WHERE page = '/a'", "PAGES.N + 1", "1 key of the state of CTAS_PAGES_0"),
    ],
)
def test_a_select_is_explained_without_a_key(session: SqlSession, query: str, expression: str, fact: str) -> None:
    found = one(session, f"EXPLAIN {query};")
    assert expression in [text for text, _, _ in found.expressions]
    assert any(fact in value for _, value in found.facts)
    assert ("topics: [clicks]" in found.topology) == ("clicks" in query)


def test_print_shows_values_as_they_stand_in_the_record(session: SqlSession) -> None:
    session.execute(
        "CREATE STREAM goods (id INT KEY, price DECIMAL(6, 2), day DATE, tags ARRAY<STRING>)"
        " WITH (kafka_topic='goods', format='JSON', partitions=1);"
        "INSERT INTO goods VALUES (1, 3.10, '2024-02-29', ARRAY['x']);"
    )
    (stream,) = session.execute("PRINT goods FROM BEGINNING LIMIT 1;")
    assert isinstance(stream, Stream)
    assert [row[2] for row in stream] == ['{"PRICE": 3.10, "DAY": 19782, "TAGS": ["x"]}']


def test_print_shows_the_records_of_a_topic(session: SqlSession) -> None:
    session.execute("INSERT INTO clicks (id, page, rowtime) VALUES (1, '/a', 10);")
    found = one(session, "PRINT clicks FROM BEGINNING LIMIT 1;")
    assert isinstance(found, Stream)
    assert [row[:3] for row in found] == [(10, "1", "/a")]


def test_print_stops_when_it_is_closed(session: SqlSession) -> None:
    found = one(session, "PRINT clicks;")
    assert next(found.rows) is None
    found.close()
    assert list(found) == []


@pytest.mark.parametrize(
    ("statement", "reason", "hint"),
    [
        ("DESCRIBE page;", "Could not find STREAM/TABLE 'PAGE'", "PAGES"),
        ("DESCRIBE FUNCTION ucas;", "'UCAS'", "UCASE"),
        ("EXPLAIN CTAS_PAGE_0;", "CTAS_PAGE_0", "CTAS_PAGES_0"),
        ("TERMINATE CTAS_PAGE_0;", "CTAS_PAGE_0", "CTAS_PAGES_0"),
        ("PAUSE nothing;", "NOTHING", "SHOW QUERIES"),
        ("PRINT click;", "Could not find topic 'click'", "clicks"),
        ("SET 'auto.offset.rest' = 'x';", "auto.offset.rest", "auto.offset.reset"),
        ("SET 'ksql.sink.partition' = '1';", "ksql.sink.partition", "ksql.sink.partitions"),
        ("SET 'auto.offset.reset' = 'late';", "auto.offset.reset", ""),
        ("SHOW CONNECTORS;", "connectors", ""),
        ("CREATE SINK CONNECTOR c WITH ('a'='b');", "Connectors", ""),
        ("ASSERT TOPIC clicks WITH (partitions=3) TIMEOUT 1 MILLISECONDS;", "has 2 partitions, not 3", ""),
        ("ASSERT NOT EXISTS TOPIC clicks TIMEOUT 1 MILLISECONDS;", "exists", ""),
        ("ASSERT SCHEMA SUBJECT s;", "registry", "schema.registry.url"),
        ("ASSERT VALUES clicks (id) VALUES (1);", "test files", "sql test"),
        ("RUN SCRIPT '/nowhere/x.sql';", "cannot be read", ""),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_place(
    session: SqlSession, statement: str, reason: str, hint: str
) -> None:
    with pytest.raises(SqlError) as raised:
        session.execute(statement)
    assert reason in raised.value.message
    assert "line 1:" in raised.value.message
    assert raised.value.message.endswith("^")
    assert hint in raised.value.hint


def test_a_script_runs_its_statements_and_errors_name_it(session: SqlSession, tmp_path: Path) -> None:
    script = tmp_path / "more.sql"
    script.write_text("CREATE TYPE id AS INT;\nSHOW TYPES;")
    assert len(session.execute(f"RUN SCRIPT '{script}';")) == 2
    script.write_text("\nDESCRIBE nothing;")
    with pytest.raises(SqlError, match=r"more.sql: line 2:1"):
        session.execute(f"RUN SCRIPT '{script}';")


def test_scripts_that_run_each_other_come_to_an_end(session: SqlSession, tmp_path: Path) -> None:
    script = tmp_path / "loop.sql"
    script.write_text(f"RUN SCRIPT '{script}';")
    with pytest.raises(SqlError, match="run each other"):
        session.execute(f"RUN SCRIPT '{script}';")


def test_scripts_are_refused_where_statements_come_from_elsewhere(tmp_path: Path) -> None:
    with (
        SqlSession({"bootstrap.servers": str(tmp_path / "log.db")}, queries="wait") as session,
        pytest.raises(SqlError, match="RUN SCRIPT"),
    ):
        session.execute("RUN SCRIPT '/etc/passwd';")


def test_rows_become_frames(session: SqlSession) -> None:
    found = one(session, "SHOW STREAMS;")
    assert found.to_polars()["Stream"].to_list() == ["CLICKS"]
    assert list(found.to_pandas()["Stream"]) == ["CLICKS"]
