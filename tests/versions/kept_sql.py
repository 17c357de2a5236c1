"""A session of SQL whose journal is kept here: a stream, a type, a variable setting and a query with its state."""

from __future__ import annotations

from pathlib import Path

from penstock.sql.session import SqlSession

STATEMENTS = """
SET 'auto.offset.reset' = 'earliest';
CREATE TYPE place AS STRUCT<city STRING, number INT>;
CREATE STREAM clicks (id INT KEY, page STRING, at place)
    WITH (kafka_topic='clicks', format='JSON', partitions=1, retention_ms=-1);
CREATE TABLE pages AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
CREATE STREAM homes AS SELECT id, at->city AS city FROM clicks WHERE page = '/home';
DROP STREAM homes;
"""
ROW = "INSERT INTO clicks (id, page, rowtime) VALUES (%d, '%s', %d);"


def session(root: Path) -> SqlSession:
    return SqlSession({"bootstrap.servers": str(root / "log.db")}, queries="wait")


def begin(root: Path) -> None:
    with session(root) as made:
        made.execute(STATEMENTS + ROW % (1, "/home", 1_000))
