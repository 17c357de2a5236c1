"""Sinks and sources over a REST catalog of Apache Iceberg: each record is a row once, also where answers are lost."""

import pytest

from iceberg_rest import RestCatalog, RestLakehouse
from java_sources import compiler
from lakehouse_soak import killed
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError

pytestmark = [
    pytest.mark.whole,  # a JVM, and what PyIceberg does over any other catalog
    pytest.mark.skipif(compiler() is None, reason="there is no JDK (javac) to compile the catalog with"),
]
TOKEN = "hush-hush"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = RestCatalog(tmp_path_factory.mktemp("rest") / "catalog", TOKEN)
    yield running
    running.stop()


@pytest.fixture
def lake(server):
    return RestLakehouse("iceberg", server.folder, server)


def sink(table, **more):
    config = {"topics": "hits", "name": "lake", "flush.interval.ms": 0, **table.config, **more}
    return ConnectTestDriver(table.lake.connector, config)


def numbers(table):
    return sorted(row["n"] for row in table.rows())


@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_each_record_is_a_row_once_although_answers_are_lost(lake, server, mode):
    table = lake / f"once_{mode}"
    driver = sink(table, **({"insert.mode": "upsert", "pk.fields": "id"} if mode == "upsert" else {}))
    for number, crash in enumerate([None, Step.PUT, None, Step.FLUSHED, None, Step.READ, None]):
        if number % 2 == 0:
            server.lose_the_answer_of_the_next_commit()
        driver.produce("hits", {"n": number}, key=str(number % 3))
        driver.put(crash=crash)
    driver.put_all()
    driver.restart()
    driver.put_all()
    assert numbers(table) == (list(range(7)) if mode == "insert" else [4, 5, 6])


def test_columns_are_added_and_older_rows_are_read(lake):
    table = lake / "columns"
    driver = sink(table)
    driver.produce("hits", {"n": 1})
    driver.put()
    driver.produce("hits", {"n": 2, "path": "/"})
    driver.put_all()
    assert sorted((row["n"], row["path"]) for row in table.rows()) == [(1, None), (2, "/")]
    assert [row["n"] for row in table.rows(versions_back=1)] == [1]


def test_a_catalog_that_is_away_is_asked_again(lake, server):
    table = lake / "away"
    driver = sink(table)
    driver.produce("hits", {"n": 1})
    driver.put()
    server.stop()
    try:
        driver.produce("hits", {"n": 2})
        driver.put()
        with pytest.raises(ConnectError, match="catalog default cannot be reached"):
            sink(table, name="other")
    finally:
        server.start()
    driver.put_all()
    assert numbers(table) == [1, 2]


def test_a_wrong_token_fails_the_task_and_is_not_shown(lake):
    with pytest.raises(ConnectError, match="the token is missing or wrong") as caught:
        sink(lake / "refused", **{"catalog.token": "hush-wrong"})
    assert "hush" not in f"{caught.value}{caught.value.__cause__}"


def test_a_table_is_a_source_also_where_the_catalog_is_away(lake, server):
    table = lake / "read"
    driver = sink(table)
    driver.produce("hits", *({"n": n} for n in range(5)))
    driver.put_all()
    config = {"name": "back", "topic": "rows", "poll.interval.ms": 1, **table.config}
    source = ConnectTestDriver(lake.source, config)
    for _ in range(8):
        source.poll()
    assert sorted(record.value["n"] for record in source.read("rows")) == list(range(5))
    driver.produce("hits", {"n": 5})
    driver.put_all()
    server.stop()
    try:
        assert not source.poll()
    finally:
        server.start()
    for _ in range(3):
        source.poll()
    assert [record.value["n"] for record in source.read("rows")][5:] == [5]


@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_a_sink_that_is_killed_writes_each_record_once(tmp_path, mode):
    server = RestCatalog(tmp_path / "catalog", TOKEN)
    try:
        killed(RestLakehouse("iceberg", server.folder, server), tmp_path, 5, seed=1, mode=mode)
    finally:
        server.stop()
