"""Tables of lakehouses that Spark reads and changes: an older Spark in an environment of its own, as the formats' jars lag behind.

The jars for Spark 4.0 work in PySpark 4.0.1 alone; this project's own PySpark has none yet.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from lakehouse_spark import CATALOG, plain
from lakehouses import Lakehouse
from penstock.base.jars import fetch_jars
from penstock.connect.testing import ConnectTestDriver
from penstock.errors import ConnectError, EnvironmentProblemError
from penstock.log import Producer
from penstock.log.open import open_log
from penstock.tools.broker.java_worker import check_noted

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from peer_setup import NotInstalledError, Peer

pytestmark = pytest.mark.whole  # a JVM, and half a gigabyte of packages
PYSPARK, DELTA, ICEBERG = "4.0.1", "4.0.0", "1.10.0"
JARS = (
    ("io.delta", "delta-spark_2.13", DELTA),
    ("org.apache.iceberg", "iceberg-spark-runtime-4.0_2.13", ICEBERG),
    ("org.xerial", "sqlite-jdbc", "3.46.0.0"),
)
PATIENCE_S = 1800
SCRIPT = Path(__file__).with_name("lakehouse_spark.py")
TYPES = {
    "n": {"type": "int64"},
    "user": {"type": "string", "optional": True},
    "price": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
    "at": {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"},
    "due": {"type": "int32", "name": "org.apache.kafka.connect.data.Date"},
    "raw": {"type": "bytes"},
    "ok": {"type": "boolean"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "place": {"type": "struct", "fields": [{"field": "x", "type": "double"}, {"field": "name", "type": "string"}]},
}
PARTITIONS = {"delta": "user", "iceberg": "day(at), bucket(user, 4)"}


class Written:
    """A table of each way of writing, and how Spark names it."""

    def __init__(self, kind, folder):
        self.kind, self.lake = kind, Lakehouse(kind, folder)
        self.appended, self.upserted = self.lake / "appended", self.lake / "upserted"
        self.log = open_log(f"memory://lakehouse-spark-{kind}")
        self.log.create_topic("typed")
        self.numbers, self.drivers = iter(range(100)), {}

    def sink(self, topic, table, **more):
        config = {"topics": topic, "name": topic, "flush.interval.ms": 0, **table.config, **more}
        return ConnectTestDriver(table.lake.connector, config, log=self.log)

    def append(self, **more):
        """Three rows of all types, in a commit of their own."""
        typed = TYPES | {name: {"type": "string"} for name in more}
        schema = {"type": "struct", "fields": [{"field": name, **each} for name, each in typed.items()]}
        with Producer(self.log) as producer:
            for _ in range(3):
                n = next(self.numbers)
                payload = {
                    "n": n, "user": "ab"[n % 2], "price": "AN4=", "at": 86_400_000 * n + 1234, "due": n, "raw": "AAE=",
                    "ok": n % 2 == 0, "tags": ["x", str(n)], "place": {"x": n / 2, "name": "é"}, **more,
                }  # fmt: skip
                producer.send("typed", json.dumps({"schema": schema, "payload": payload}).encode())
        converters = {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}
        self.sink("typed", self.appended, **converters, **{"partition.by": PARTITIONS[self.kind]}).put(commit=False)

    def upsert(self, values):
        """Rows by key, in a commit of their own; None deletes."""
        driver = self.sink("keyed", self.upserted, **{"insert.mode": "upsert", "pk.fields": "id"})
        for key, value in values.items():
            driver.produce("keyed", value, key=key)
        driver.put(commit=False)  # the offsets of the table count

    def read_back(self, table, **more):
        """The keys that the source makes of a table."""
        config = {"topic": "back", "name": "back", "read.mode": "changes", "key.fields": "id", **table.config, **more}
        source = ConnectTestDriver(self.lake.source, config)
        return [record.key for _ in range(3) for record in source.poll()]

    @property
    def is_compacted(self):
        loaded = self.appended.load()
        if self.kind == "delta":
            return "OPTIMIZE" in {each["operation"] for each in loaded.history()}
        return "replace" in {each.summary.operation.value for each in loaded.snapshots()}

    def name(self, table):
        return f"delta.`{self.lake.folder}/{table.name}`" if self.kind == "delta" else f"`{CATALOG}`.lake.{table.name}"

    def first(self, table):
        """The oldest version that has rows, and those."""
        loaded = table.load()
        if self.kind == "delta":
            loaded.load_as_version(1)
            return 1, rows(loaded.to_pyarrow_table())
        snapshot = loaded.history()[0].snapshot_id
        return snapshot, rows(loaded.scan(snapshot_id=snapshot).to_arrow())


def rows(arrow):
    return in_order(plain(row) for row in arrow.to_pylist())


def in_order(found):
    return sorted(found, key=lambda row: json.dumps(row, sort_keys=True))


@pytest.fixture(scope="module")
def spark_sql():
    """Runs statements in Spark 4.0 over the tables of a folder, and returns their rows."""
    try:
        python = Peer("spark", f"Spark {PYSPARK}", f"pyspark=={PYSPARK}").install()
        jars = fetch_jars(f"packages/lakehouse-spark-{PYSPARK}", JARS, check=check_noted)
    except (NotInstalledError, EnvironmentProblemError) as error:
        pytest.skip(f"no Spark {PYSPARK} with the jars of Delta Lake and Iceberg: {error}")

    def run(folder, statements):
        asked = {
            "folder": str(folder),
            "jars": ",".join(map(str, sorted(jars.glob("*.jar")))),
            "statements": statements,
        }
        own = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHONPATH", "SPARK_", "PYSPARK_"))
        }
        done = subprocess.run(
            [python, SCRIPT], input=json.dumps(asked), stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S,
            env=own | {"TZ": "UTC"}, cwd=folder, check=False,
        )  # fmt: skip
        assert done.returncode == 0
        return json.loads(done.stdout)

    return run


def test_spark_reads_and_changes_what_the_sinks_write_and_they_go_on(spark_sql, tmp_path):
    written = [Written(kind, tmp_path) for kind in ("delta", "iceberg")]
    statements, expected = {}, {}
    for each in written:
        each.append()
        each.append(more="new")
        each.upsert({"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}})
        each.upsert({"a": {"n": 4, "more": 1.5}, "b": None, "d": {"n": 5}, "never": None})
        for table in (each.appended, each.upserted):
            version, before = each.first(table)
            for name, suffix, found in (
                ("now", "", rows(table.arrow())),
                ("first", f" VERSION AS OF {version}", before),
            ):
                key = f"{each.kind} {table.name} {name}"
                statements[key], expected[key] = f"SELECT * FROM {each.name(table)}{suffix}", found
    assert [len(found) for found in expected.values()] == [6, 3, 3, 3] * 2
    for each in written:
        statements |= {f"{each.kind} change {number}": change for number, change in enumerate(changes(each))}
    answers = spark_sql(tmp_path, statements)
    with pytest.raises(ConnectError, match="deletes rows by files of deletes"):
        written[1].read_back(written[1].upserted, **{"start.at": "earliest"})
    assert {name: in_order(answers[name]) for name in expected} == expected
    for each in written:
        assert each.is_compacted
        assert Counter(each.read_back(each.upserted)) == Counter("acdsu")
        each.append(more="newer")
        each.upsert({"s": {"n": 10}, "d": None})
        found = {row["n"]: row["more"] for row in each.appended.rows()}
        assert found == {0: "Spark", 2: None, **dict.fromkeys((3, 4, 5), "new"), **dict.fromkeys((6, 7, 8), "newer")}
        assert {row["id"]: row["n"] for row in each.upserted.rows()} == {"a": 4, "c": 3, "s": 10, "u": 8}
        assert (len(each.appended.rows()), len(each.upserted.rows())) == (8, 4)


def changes(written):
    """Statements of another writer: rows are changed, deleted, added, small files made large."""
    appended, upserted = written.name(written.appended), written.name(written.upserted)
    yield f"UPDATE {appended} SET more = 'Spark' WHERE n = 0"
    yield f"DELETE FROM {appended} WHERE n = 1"
    more = ", ".join(f"('{key}', {n}L, CAST(NULL AS DOUBLE))" for key, n in (("s", 6), ("t", 7), ("u", 8)))
    yield f"INSERT INTO {upserted} (id, n, more) SELECT /*+ COALESCE(1) */ * FROM VALUES {more}"
    if written.kind == "delta":
        yield f"OPTIMIZE {appended}"
    else:  # the row that goes stays in its file, beside a file of deletes
        yield f"ALTER TABLE {upserted} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')"
        options = "options => map('rewrite-all', 'true')"
        yield f"CALL `{CATALOG}`.system.rewrite_data_files(table => 'lake.{written.appended.name}', {options})"
    yield f"DELETE FROM {upserted} WHERE id = 't'"
