"""Penstock SQL on Spark: a file as an application, a session that is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eventually import eventually
from penstock.connect.record_generators import GeneratorSettings, access_log
from penstock.engines.kafka_streams import KafkaStreams
from penstock.log.open import open_log
from penstock.sql.session import SessionSettings, SqlSession
from penstock.sql.session.script_application import Script
from penstock.testing import TopologyTestDriver
from penstock.tools.demo import access_log as demo

HERE = Path(__file__).parent
FILE = HERE.parent.parent / "examples" / "access_log.sql"
LINES = 600
Record = tuple[bytes | None, bytes | None, int]


def records_of(log: Any, topic: str, partition: int = 0) -> list[Record]:
    found = []
    for batch in log.iterate(topic, partition, 0, log.end_offset(topic, partition)):
        found += [(row["key"], row["value"], row["timestamp"]) for row in batch.to_pylist()]
    return found


def lines() -> list[str]:
    settings = GeneratorSettings(seed=5, start_ms=1_790_000_000_000, count=LINES, rate=4.0)
    return [str(each.value) for each in access_log(settings, bad_share=0.05)]


def counted_by_the_dsl(given: list[str]) -> list[Record]:
    settings = {
        "statestore.cache.max.bytes": 0,
        "processing.exception.handler": "continue",
        "errors.dead.letter.queue.topic.name": "access_log-bad",
    }
    found = []
    with TopologyTestDriver(demo.topology, settings) as driver:
        for at, line in enumerate(given):
            driver.pipe_raw("access_log", None, line.encode(), at, ())
        while (record := driver.read_raw("os-check")) is not None:
            found.append((record.key, record.value, record.timestamp))
    return found


def test_a_windowed_count_from_a_file_equals_that_of_the_dsl_record_for_record(spark: Any, tmp_path: Path) -> None:
    place, given = str(tmp_path / "log.db"), lines()
    settings = SessionSettings.of({"bootstrap.servers": place, "statestore.cache.max.bytes": 0})
    with open_log(place) as log:
        script = Script(FILE.read_text(), settings)
        script.prepare(log, "os-check")
        values = pa.array([line.encode() for line in given], pa.large_binary())
        times = pa.array(range(len(given)), pa.int64())
        keys = pa.nulls(len(given), pa.large_binary())
        batch = pa.RecordBatch.from_pydict({"timestamp": times, "key": keys, "value": values})
        log.append("access_log", 0, batch)
        while True:
            KafkaStreams(script.topology(), script.app_settings("os-check"), session=spark).run(until="latest")
            if not script.has_more(log, "os-check"):
                break
        found = records_of(log, "os-check")
    wanted = counted_by_the_dsl(given)
    assert len(wanted) > LINES * 0.9
    assert len({key for key, _, _ in wanted}) > 10, "several windows and systems"
    assert found == wanted


@contextmanager
def running(place: str, *statements: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(HERE / "sql_app.py"), place, *statements]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str], state: str, count: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        assert "'ERROR'" not in line, line
        if line.startswith("STATES") and line.count(f"'{state}'") == count:
            return
    raise AssertionError(f"the session has ended with {process.wait()}")


def test_a_killed_session_comes_back_with_all_queries_where_they_were(tmp_path: Path) -> None:
    place = str(tmp_path / "log.db")
    statements = (
        "CREATE STREAM clicks (page STRING) WITH (kafka_topic='clicks', value_format='JSON', partitions=1);"
        "CREATE STREAM homes AS SELECT * FROM clicks WHERE page LIKE '/h%';"
        "CREATE TABLE counts AS SELECT page, COUNT(*) AS n FROM homes GROUP BY page;"
    )

    def counts() -> list[tuple[str, int]]:
        with open_log(place) as log:
            rows = records_of(log, "COUNTS")
        return [((key or b"").decode(), json.loads(value or b"")["N"]) for key, value, _ in rows]

    def click(*pages: str) -> None:
        with SqlSession({"bootstrap.servers": place}, queries="wait") as other:
            assert other.holder is not None, "the killed session's successor holds the catalog"
            for page in pages:
                other.execute(f"INSERT INTO clicks VALUES ('{page}');")

    with running(place, statements) as process:
        wait_for(process, "RUNNING", 2)
        click("/home", "/x", "/home", "/help")
        eventually(lambda: dict(counts()) == {"/home": 2, "/help": 1}, 120, facts=counts)
        click("/home")
        process.send_signal(signal.SIGKILL)
        process.wait()
    with running(place) as process:
        wait_for(process, "RUNNING", 2)
        click("/help", "/home")
        eventually(lambda: dict(counts()) == {"/home": 4, "/help": 2}, 120, facts=counts)
    for page in ("/home", "/help"):
        found = [count for name, count in counts() if name == page]
        assert found == sorted(set(found)), "each count once and in order; the topic is compacted"


def test_five_queries_of_a_session_run_at_once_on_two_cores_in_a_thread_each_unless_set(tmp_path: Path) -> None:
    """One of them has set another number: each gets no more threads than it has tasks."""
    place = str(tmp_path / "log.db")
    make = "CREATE STREAM {0} AS SELECT * FROM clicks WHERE page = '{0}';"
    statements = (
        "CREATE STREAM clicks (page STRING) WITH (kafka_topic='clicks', value_format='JSON', partitions=3);"
        + "".join(make.format(name) for name in "abcd")
        + "SET 'ksql.streams.num.stream.threads' = '2';"
        + make.format("e")
    )
    with running(json.dumps({"bootstrap.servers": place, "spark.master": "local[2]"}), statements) as process:
        wait_for(process, "RUNNING", 5)
        lines = (line for line in process.stdout or () if line.startswith("THREADS"))
        eventually(lambda: sorted(json.loads(next(lines).removeprefix("THREADS")).values()) == [1, 1, 1, 1, 2], 300)
        with SqlSession({"bootstrap.servers": place}, queries="wait") as other:
            for page in "abcde":
                other.execute(f"INSERT INTO clicks VALUES ('{page}');")
        with open_log(place) as log:
            eventually(lambda: all(sum(log.end_offsets([name]).values()) == 1 for name in "ABCDE"), 300)


@pytest.mark.parametrize("mode", ["micro_batch", "continuous"])
def test_errors_of_expressions_in_workers_are_counted_by_the_session(spark: Any, tmp_path: Path, mode: str) -> None:
    config = {
        "bootstrap.servers": str(tmp_path / "log.db"),
        "state.dir": str(tmp_path / "state"),
        "processing.mode": mode,
        "num.stream.threads": 1,
    }
    with SqlSession(config, queries="wait", spark=spark) as session:
        session.execute(
            "CREATE STREAM c (id INT KEY, n INT) WITH (kafka_topic='c', format='JSON', partitions=1);"
            "INSERT INTO c VALUES (1, 0); INSERT INTO c VALUES (2, 5); INSERT INTO c VALUES (3, 0);"
            "CREATE STREAM o AS SELECT id, 10 / n AS q FROM c;"
        )
        session.catch_up()
        assert session.queries["CSAS_O_0"].errors == {"10 / C.N": 2}
        assert session.table("o").rows == ((1, None), (2, 2), (3, None))
