"""Wrong statements: whatever is wrong with one, the error is of SQL, names a place, shows its line, and changes nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import SqlError
from penstock.sql.analyse import apply_script
from penstock.sql.catalog import Catalog

SOURCES = """
CREATE TYPE place AS STRUCT<town STRING, zip INT>;
CREATE STREAM s (k INT KEY, a INT, b BIGINT, t STRING, d DOUBLE, e DECIMAL(6, 2), l ARRAY<INT>, m MAP<STRING, INT>, p place,
  day DATE, o BOOLEAN) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE STREAM r (k INT KEY, a INT, u STRING) WITH (kafka_topic='r', value_format='JSON', partitions=1);
CREATE TABLE x (k INT PRIMARY KEY, n INT, v STRING) WITH (kafka_topic='x', value_format='JSON', partitions=1);
CREATE TABLE y (k INT PRIMARY KEY, n INT, w STRING) WITH (kafka_topic='y', format='AVRO', partitions=1);
"""
CASES = Path(__file__).parent / "cases"
BASE = apply_script(SOURCES, Catalog())[0]
VALID = [
    "CREATE STREAM n AS SELECT k, a + b * 2 AS q, UCASE(t) AS w, p->town FROM s WHERE a > 1 AND t LIKE 'x%' EMIT CHANGES",
    "CREATE STREAM n WITH (kafka_topic='n', partitions=2) AS SELECT s.k, u, s.a FROM s JOIN r WITHIN 1 MINUTE ON s.k = r.k",
    "CREATE STREAM n AS SELECT s.k, u, v FROM s JOIN r WITHIN (1 SECOND, 2 SECONDS) GRACE PERIOD 1 DAY ON s.k = r.k JOIN x ON s.k = x.k",
    "CREATE TABLE n AS SELECT t, COUNT(*) AS c, SUM(a) / 2 AS h, TOPK(b, 3) AS z FROM s GROUP BY t HAVING COUNT(*) > 1",
    "CREATE TABLE n AS SELECT k, WINDOWSTART AS w, MAX(d) AS m FROM s WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 5 MINUTES) GROUP BY k",
    "CREATE TABLE n AS SELECT x.k AS k, v, w FROM x LEFT JOIN y ON x.n = y.k",
    "CREATE TABLE n AS SELECT k, COUNT(*) AS c FROM s WINDOW SESSION (5 MINUTES, GRACE PERIOD 0 SECONDS) GROUP BY k EMIT FINAL",
    "CREATE STREAM n AS SELECT EXPLODE(l) AS i, TRANSFORM(l, z => z + a) AS j, k FROM s",
    "CREATE STREAM n AS SELECT t, CASE WHEN a = 1 THEN 'x' WHEN o THEN 'y' ELSE t END AS c FROM s PARTITION BY t",
    "CREATE STREAM n AS SELECT k, CAST(e AS DECIMAL(8, 3)) AS f, ARRAY[a, 2][1] AS g, MAP('x' := a)['x'] AS h FROM s",
    "CREATE STREAM n AS SELECT k, STRUCT(f := a, g := t)->f AS i, a BETWEEN 1 AND 3 AS c, a IN (1, NULL) AS z FROM s",
    "INSERT INTO s (k, a, t) VALUES (1, -2, 'x')",
    "INSERT INTO r SELECT k, a, t AS u FROM s WHERE day > '2020-01-01'",
    "CREATE OR REPLACE STREAM q (k INT KEY, z INT, zz STRING) WITH (kafka_topic='q', key_format='JSON', value_format='DELIMITED', value_delimiter='|')",
    "CREATE SOURCE TABLE q (k STRING PRIMARY KEY, z DECIMAL(4, 2)) WITH (kafka_topic='q', value_format='JSON')",
    "ALTER STREAM s ADD COLUMN z INT",
    "DROP STREAM IF EXISTS r DELETE TOPIC",
    "SET 'auto.offset.reset' = 'earliest'",
    "DEFINE z = 'x'",
    "TERMINATE ALL",
]
OTHERS = [
    *(
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP",
        "BY",
        "NULL",
        "*",
        "(",
        ")",
        ",",
        "'x'",
        "1",
        "-1",
        "1.5",
        "1E400",
        "99999999999999999999",
    ),
    *(
        "a",
        "k",
        "t",
        "l",
        "m",
        "p",
        "nothing",
        "s",
        "x",
        "s.a",
        "x.n",
        "`a`",
        "SUM(a)",
        "EXPLODE(l)",
        "COUNT(*)",
        "TOPK(a, 0)",
    ),
    *(
        "l[1]",
        "m['x']",
        "p->town",
        "p->none",
        "UCASE(1)",
        "CAST('x' AS INT)",
        "CAST(a AS nothing)",
        "ARRAY[]",
        "MAP()",
        "NOT",
        "AS",
    ),
    *(
        "WINDOWSTART",
        "ROWTIME",
        "EMIT",
        "FINAL",
        "JOIN",
        "ON",
        "0 SECONDS",
        "DECIMAL(0, 0)",
        "DECIMAL(99, 9)",
        "ARRAY<INT>",
        "${z}",
    ),
    *(
        "(x => x)",
        "(a, b) => a",
        "->",
        "[",
        "]",
        "=",
        "<",
        "||",
        "+",
        "/",
        "'",
        '"',
        "`",
        "--",
        "/*",
        "\x00",
        "é",
        "\U0001f600",
    ),
]
TOKEN = re.compile(r"'(?:[^']|'')*'|`[^`]*`|\w+|->|=>|:=|\S")


def check(text, catalog=BASE):
    """Apply a script; if it is refused, check the error, and that the catalog is as before."""
    before = sorted(catalog.sources)
    try:
        apply_script(text, catalog)
    except SqlError as raised:
        error = raised
    else:
        return None
    assert re.match(r"line \d+:\d+: ", error.message), error.message
    assert error.message.split("\n")[-1].strip() == "^", error.message
    assert error.line <= text.count("\n") + 1
    assert sorted(catalog.sources) == before
    return error


@pytest.mark.parametrize("statement", VALID)
def test_the_statements_that_are_spoilt_are_right(statement):
    assert check(f"{statement};") is None


@settings(max_examples=600)
@given(st.data())
def test_a_statement_with_words_changed_is_run_or_refused_with_its_place(data):
    words = TOKEN.findall(data.draw(st.sampled_from(VALID)))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(words) - 1))
        change = data.draw(st.sampled_from(["drop", "double", "swap", "other", "insert", "letter"]))
        if change == "drop":
            words = words[:place] + words[place + 1 :] or ["SELECT"]
        elif change == "double":
            words = [*words[: place + 1], *words[place:]]
        elif change == "swap":
            other = data.draw(st.integers(0, len(words) - 1))
            words[place], words[other] = words[other], words[place]
        elif change == "insert":
            words.insert(place, data.draw(st.sampled_from(OTHERS)))
        elif change == "letter":
            words[place] = words[place][:-1] + data.draw(st.sampled_from(["", "x", "_", "9", "'"])) or "x"
        else:
            words[place] = data.draw(st.sampled_from(OTHERS))
    check(" ".join(words) + ";")


@pytest.mark.parametrize("statement", VALID)
def test_a_statement_that_lacks_any_one_word_is_run_or_refused_with_its_place(statement):
    words = TOKEN.findall(statement)
    for place in range(len(words)):
        check(" ".join([*words[:place], *words[place + 1 :]]) + ";")


def test_every_refusal_of_our_cases_has_its_place():
    seen = 0
    for file in ("refusals", "refusals-more"):
        for case in json.loads((CASES / f"{file}.json").read_text())["tests"]:
            error = check("\n".join(case["statements"]), Catalog())
            assert error is not None, case["name"]
            seen += 1
    assert seen >= 100


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("CREATE STREAM n AS SELECT k, aa FROM s;", "Did you mean A?"),
        ("CREATE STREAM n AS SELEC k, a FROM s;", "SELECT"),
        ("CREATE STREAM n AS SELECT k, a FROM orderz;", "Did you mean ORDERS?"),
        ("CREATE STREAM n AS SELECT k, UCSE(t) AS c FROM s;", "Did you mean UCASE?"),
        ("CREATE TABLE n AS SELECT k, CONT(*) AS c FROM s GROUP BY k;", "Did you mean COUNT?"),
        ("CREATE STREAM n AS SELECT k, CAST(a AS BIGNT) AS c FROM s;", "Did you mean BIGINT?"),
        ("CREATE STREAM n AS SELECT k, p->twon FROM s;", "Did you mean TOWN?"),
        ("CREATE STREAM q (a INT) WITH (kafka_topc='q', value_format='JSON');", "Did you mean KAFKA_TOPIC?"),
        ("CREATE STREAM q (a INT) WITH (kafka_topic='q', value_format='JSN');", "Formats are JSON"),
        ("CREATE STREAM n AS SELECT k FROM orders WHERE SUM(a) > 1;", "\nFilter aggregates by HAVING."),
        ("INSERT INTO oders VALUES (1);", "Did you mean ORDERS?"),
        ("DROP STREAM ordrs;", "Did you mean ORDERS?"),
        ("ALTER STREAM ordrs ADD COLUMN b INT;", "Did you mean ORDERS?"),
        ("INSERT INTO orders (ROWTIME, k) VALUES (-1, 2);", "line 1:41: ROWTIME is milliseconds since 1970"),
        ("INSERT INTO orders (k, aa) VALUES (1, 2);", "line 1:24: Column name AA does not exist"),
        ("CREATE STREAM q (a INT) WITH (kafka_topic='q', value_format='JSON', partitions=0);", "must be 1 or more"),
        ("CREATE TABLE q AS SELECT k, a, COUNT(*) AS n FROM orders GROUP BY k, a;", "KEY_FORMAT='JSON'"),
    ],
)
def test_the_nearest_name_is_shown(text, hint):
    orders = "CREATE STREAM orders (k INT KEY, a INT) WITH (kafka_topic='o', value_format='JSON', partitions=1);"
    error = check(text, apply_script(orders, BASE)[0])
    assert error is not None
    assert hint in f"{error.message}\n{error.hint}"
