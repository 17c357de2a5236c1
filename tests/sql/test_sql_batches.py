"""A query's results are the same record by record and in batches by column."""

from __future__ import annotations

import json
import random

import pytest

from penstock.sql.session import SessionSettings
from penstock.sql.session.script_application import Script
from penstock.testing import TopologyTestDriver

STREAM = "CREATE STREAM s (k VARCHAR KEY, n INT, b BIGINT, t VARCHAR) WITH (kafka_topic='s', value_format='JSON');"
TABLE = "CREATE TABLE u (k VARCHAR PRIMARY KEY, city VARCHAR) WITH (kafka_topic='u', value_format='DELIMITED');"
OUT = "WITH (kafka_topic='out', value_format='JSON')"
QUERIES = {
    "filters and projections": f"""CREATE STREAM o {OUT} AS SELECT k, n + 1 AS m, b * 2 AS d, UCASE(t) AS t,
        REGEXP_EXTRACT('[a-z]+', t) AS letters FROM s WHERE n > 1 OR t LIKE '%x%';""",
    "counts and sums by key": f"CREATE TABLE o {OUT} AS SELECT k, COUNT(*) AS c, COUNT(t) AS ts, SUM(n) AS x FROM s GROUP BY k;",
    "sums that wrap around": f"CREATE TABLE o {OUT} AS SELECT t, SUM(n * 1000000) AS x, SUM(b) AS y FROM s GROUP BY t;",
    "other aggregates": f"CREATE TABLE o {OUT} AS SELECT t, COUNT(*) AS c, AVG(n) AS x, MAX(b) AS y FROM s GROUP BY t;",
    "windows": f"""CREATE TABLE o {OUT} AS SELECT k, WINDOWSTART AS w, COUNT(*) AS c, SUM(b) AS x FROM s
        WINDOW HOPPING (SIZE 20 SECONDS, ADVANCE BY 10 SECONDS, GRACE PERIOD 5 SECONDS) GROUP BY k HAVING COUNT(*) > 1;""",
    "windows of another key": f"""CREATE TABLE o {OUT} AS SELECT t, COUNT(*) AS c FROM s
        WINDOW TUMBLING (SIZE 20 SECONDS, GRACE PERIOD 5 SECONDS) GROUP BY t;""",
    "sessions": f"CREATE TABLE o {OUT} AS SELECT k, COUNT(*) AS c FROM s WINDOW SESSION (3 SECONDS) GROUP BY k;",
    "joins": f"CREATE STREAM o {OUT} AS SELECT s.k AS k, n, city, t FROM s LEFT JOIN u ON s.k = u.k;",
    "joins and groups": f"CREATE TABLE o {OUT} AS SELECT city, COUNT(*) AS c FROM s JOIN u ON s.k = u.k GROUP BY city;",
    "other keys": f"CREATE STREAM o {OUT} AS SELECT t, n, k FROM s PARTITION BY t;",
    "tables of tables": f"CREATE TABLE o {OUT} AS SELECT city, COUNT(*) AS c FROM u GROUP BY city;",
}
ODD = [
    b"null",
    b"{",
    b"[]",
    b'{"N": "12", "B": 3}',
    b'{"n": 2.0, "t": "\\u00e9x"}',
    b'{"t": {"a": 1}, "N": 4}',
    None,
    b"{}",
]


def records(seed):
    chance = random.Random(seed)
    for number in range(160):
        key = chance.choice([b"a", b"b", b"c", None]) if number % 9 == 0 else chance.choice([b"a", b"b", b"c", b"d"])
        if chance.random() < 0.2:
            yield (
                "u",
                chance.choice([b"a", b"b", b"c"]),
                chance.choice([b"rome", b"oslo", b'"a,b"', b"", None]),
                number * 1000,
            )
            continue
        fields = {
            "n": chance.randrange(-5, 900),
            "b": chance.choice([1, -7, 2**62, None]),
            "t": chance.choice(["x", "yx", "é", None]),
        }
        value = (
            chance.choice(ODD)
            if chance.random() < 0.15
            else json.dumps(fields, ensure_ascii=chance.random() < 0.5).encode()
        )
        yield "s", key, value, number * 700 - chance.randrange(9000) * (chance.random() < 0.2) + 10_000


def results(statement, given, **how):
    script = Script(f"{STREAM}{TABLE}{statement}", SessionSettings.of({}), {"s": 1, "u": 1, "out": 1})
    settings = {"statestore.cache.max.bytes": 0, "deserialization.exception.handler": "continue"}
    topology = script.topology()
    read = {topic for source in topology.sources for topic in source.topics}
    with TopologyTestDriver(topology, settings, **how) as driver:
        for topic, key, value, time in given:
            if topic in read:
                driver.pipe_raw(topic, key, value, max(time, 0))
        driver.flush()
        found = []
        while (record := driver.read_raw("out")) is not None:
            found.append((record.key, record.value, record.timestamp))
    return found


@pytest.mark.parametrize("name", list(QUERIES))
def test_a_batch_by_column_has_the_results_of_single_records(name):
    given = list(records(name))
    alone = results(QUERIES[name], given)
    assert len(alone) > 10
    assert results(QUERIES[name], given, batch_size=1000, by_column=True) == alone
    assert results(QUERIES[name], given, batch_size=50, by_column=True) == alone
