"""Connect workers, Java's and Penstock's, on one broker in one run: python bench/connect.py [--records N] [--output FILE].

Each worker gets the same connectors by the same requests: a file source, a file sink, a file source with three
transformations and JSON, a mirror; and a JDBC sink to PostgreSQL, which in Java is Debezium's. The time counts from the
request to the last record; CPU and memory are those of all processes of the worker. Workers are distributed ones, or
standalone ones with ``--mode standalone``; ``--tasks`` are those of the JDBC sink, with a partition for each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "connect"))
sys.path.insert(0, str(Path(__file__).parent))

from machine import TreeWatch, facts
from penstock.base.jars import CONNECT_VERSION, fetch_jars, java_command
from penstock.log.open import open_log
from penstock.tools.broker.broker_settings import BrokerSettings, free_port
from penstock.tools.broker.process import Broker
from postgres_server import PostgresServer, missing_postgres

PARTS = ("connect-runtime", "connect-file", "connect-json", "connect-transforms", "connect-mirror")
JARS = (*(("org.apache.kafka", part, CONNECT_VERSION) for part in PARTS), ("org.slf4j", "slf4j-nop", "1.7.36"))
DEBEZIUM = "3.3.1.Final"
SINK_JARS = (  # one by one: what is for Debezium's tests alone is not on Maven Central
    *(("io.debezium", part, DEBEZIUM) for part in (
        "debezium-api", "debezium-common", "debezium-connector-jdbc", "debezium-core", "debezium-openlineage-api",
        "debezium-sink",
    )),
    ("org.hibernate.orm", "hibernate-core", "7.1.0.Final"), ("org.hibernate.orm", "hibernate-c3p0", "7.1.0.Final"),
    ("org.hibernate.models", "hibernate-models", "1.0.1"), ("org.jboss.logging", "jboss-logging", "3.6.1.Final"),
    ("com.mchange", "c3p0", "0.9.5.5"), ("com.mchange", "mchange-commons-java", "0.2.19"),
    ("org.antlr", "antlr4-runtime", "4.13.2"), ("net.bytebuddy", "byte-buddy", "1.17.6"),
    ("com.fasterxml", "classmate", "1.7.0"),  # the rest of Jackson is the worker's
    ("com.fasterxml.jackson.datatype", "jackson-datatype-jsr310", "2.19.0"), ("org.postgresql", "postgresql", "42.7.7"),
    ("jakarta.persistence", "jakarta.persistence-api", "3.2.0"), ("jakarta.inject", "jakarta.inject-api", "2.0.1"),
    ("jakarta.transaction", "jakarta.transaction-api", "2.0.1"), ("jakarta.xml.bind", "jakarta.xml.bind-api", "4.0.2"),
    ("jakarta.activation", "jakarta.activation-api", "2.1.3"), ("org.glassfish.jaxb", "jaxb-core", "4.0.5"),
    ("org.glassfish.jaxb", "jaxb-runtime", "4.0.5"), ("org.glassfish.jaxb", "txw2", "4.0.5"),
    ("com.sun.istack", "istack-commons-runtime", "4.1.2"), ("org.eclipse.angus", "angus-activation", "2.0.2"),
)  # fmt: skip
HEAP = ("-Xms256M", "-Xmx2G")  # those of Kafka's own script
STRING = "org.apache.kafka.connect.storage.StringConverter"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
FILE = "org.apache.kafka.connect.file.FileStream"
LINE_BYTES, VALUE_BYTES = 150, 200
PATIENCE_S = 900
SAMPLE_S = 0.5
LOOK_S = 15.0
PENSTOCK = [sys.executable, "-c", "from penstock.cli.main import main; main()"]


class Worker:
    """A worker as a process tree.

    Args:
        kind: ``java`` or ``penstock``.
        mode: ``distributed`` or ``standalone``.
        servers: The broker.
        folder: Where its settings and its log go.
        own: More settings.
    """

    def __init__(self, kind: str, mode: str, servers: str, folder: Path, own: dict[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.kind = kind
        stores = ("config", "offset", "status")
        of_mode = {"offset.storage.file.filename": str(folder / f"{kind}.offsets")}
        if mode == "distributed":
            of_mode = {f"{each}.storage.topic": f"{kind}-{each}" for each in stores}
            of_mode |= {f"{each}.storage.replication.factor": "1" for each in stores}
            of_mode |= {"group.id": kind, "offset.storage.partitions": "1", "status.storage.partitions": "1"}
        settings = {
            "bootstrap.servers": servers, "key.converter": STRING, "value.converter": STRING,
            "listeners": f"http://127.0.0.1:{self.port}", "offset.flush.interval.ms": "1000", **of_mode, **own,
        }  # fmt: skip
        file = folder / f"{kind}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = [*PENSTOCK, "connect", "worker" if mode == "distributed" else mode, str(file)]
        if kind == "java":
            plugins = folder / "plugins"
            plugins.mkdir(exist_ok=True)
            (plugins / "jdbc").symlink_to(fetch_jars(f"debezium-jdbc-{DEBEZIUM}", SINK_JARS, transitive=False))
            with file.open("a") as out:
                out.write(f"plugin.path={plugins}\n")
            jars = fetch_jars(f"kafka-connect-{CONNECT_VERSION}", JARS)
            main = f"org.apache.kafka.connect.cli.Connect{mode.title()}"
            command = [java_command(), *HEAP, "-cp", f"{jars}/*", main, str(file)]
        began = time.monotonic()
        with (folder / f"{kind}.log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
        self.wait(lambda: self.ask("GET", "/connectors") == [], "the worker answers")
        self.start_s, self.start_cpu_s = time.monotonic() - began, tree_cpu_s(self.process.pid)

    def started(self) -> dict[str, float]:
        """The time and the CPU from the command to the first answer of the REST interface, and the memory then."""
        with TreeWatch(self.process.pid) as watch:
            time.sleep(2 * SAMPLE_S)
        idle = {"start_s": round(self.start_s, 2), "start_cpu_s": round(self.start_cpu_s, 2)}
        return {**idle, "idle_bytes": watch.peak_bytes}

    def ask(self, method: str, path: str, body: object = None) -> object:
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            if error.code in (404, 409, 503):
                return None
            raise RuntimeError(f"{self.kind}: {method} {path}: {error.read()[:500]!r}") from error
        except OSError:
            return None

    def wait(self, done, what: str) -> None:
        deadline, look = time.monotonic() + PATIENCE_S, time.monotonic() + LOOK_S
        while not done():
            if self.process.poll() is not None:
                raise RuntimeError(f"the {self.kind} worker has ended before: {what}")
            if time.monotonic() > look:
                look += LOOK_S
                status = json.dumps(self.ask("GET", "/connectors?expand=status"))
                if '"FAILED"' in status:
                    raise RuntimeError(f"{self.kind}: a task has failed before: {what}; {status}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{self.kind}: not within {PATIENCE_S} s: {what}; {self.ask('GET', '/connectors?expand=status')}"
                )
            time.sleep(0.05)

    def measured(self, name: str, config: dict[str, str], done, records: int) -> dict[str, float]:
        """Run one connector until it is done."""
        cpu = tree_cpu_s(self.process.pid)
        with TreeWatch(self.process.pid) as watch:
            began = time.monotonic()
            self.wait(
                lambda: self.ask("POST", "/connectors", {"name": name, "config": config}) is not None,
                f"{name} is created",
            )
            self.wait(done, f"{name} is done")
            seconds = time.monotonic() - began
            used = tree_cpu_s(self.process.pid) - cpu
        self.ask("DELETE", f"/connectors/{name}")
        return {
            "seconds": round(seconds, 2), "records_per_s": round(records / seconds), "cpu_s": round(used, 2),
            "cpu_us_per_record": round(used / records * 1e6, 1), "peak_bytes": watch.peak_bytes,
        }  # fmt: skip

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process, of those below it, and of those below it that have ended."""
    total = 0.0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                times = each.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
    return total


def lines(count: int) -> list[bytes]:
    rng = np.random.default_rng(1)
    draw = rng.integers(0, 90_000, (count, 3)).tolist()
    agent = '"Mozilla/5.0 (X11; Linux x86_64)"'
    return [
        f'{a % 255}.{b % 255}.7.7 - - [21/Nov/2026:03:{a % 60:02d}:05 +0000] "GET /articles/{b % 5000} HTTP/1.1" 200 {c} "-" {agent}'
        .ljust(LINE_BYTES)[:LINE_BYTES].encode()
        for a, b, c in draw
    ]  # fmt: skip


def fill(log, topic: str, values: list[bytes], partitions: int = 1) -> None:
    log.create_topic(topic, partitions)
    for partition in range(partitions):
        own = values[partition::partitions]
        for at in range(0, len(own), 50_000):
            part = pa.array(own[at : at + 50_000], pa.large_binary())
            log.append(topic, partition, pa.RecordBatch.from_arrays([part], ["value"]))


def at_end(log, topic: str, wanted: bytes):
    """Whether the topic holds the last of the records."""

    def check() -> bool:
        if topic not in {info.name for info in log.topics()}:
            return False
        end = log.end_offset(topic, 0)
        if end < check.records:
            return False
        found = log.read_range(topic, 0, max(end - 3, 0), end)
        return any(wanted in (value or b"") for batch in found for value in batch.column("value").to_pylist())

    return check


def cases(log, servers: str, folder: Path, counts: tuple[int, int]):
    """Name, records, and for a kind of worker the connector's config and the check of its end."""
    count, mirrored = counts
    texts = [*lines(count - 1), b"the last line of all"]
    source = folder / "in.txt"
    source.write_bytes(b"".join(text + b"\n" for text in texts))
    fill(log, "sunk", texts)
    values = [f"{number:09d}".encode().ljust(VALUE_BYTES, b".") for number in range(mirrored)]
    fill(log, "mirrored", values)

    def ended(topic: str, records: int, wanted: bytes):
        check = at_end(log, topic, wanted)
        check.records = records
        return check

    def file_source(kind: str):
        topic = f"{kind}-lines"
        log.create_topic(topic)
        config = {"connector.class": f"{FILE}SourceConnector", "file": str(source), "topic": topic}
        return config, ended(topic, count, b"the last line of all")

    def file_sink(kind: str):
        out = folder / f"{kind}-out.txt"
        config = {"connector.class": f"{FILE}SinkConnector", "file": str(out), "topics": "sunk"}
        size = source.stat().st_size
        return config, lambda: out.exists() and out.stat().st_size >= size

    def transforms(kind: str):
        topic = f"{kind}-json"
        log.create_topic(topic)
        place = "org.apache.kafka.connect.transforms."
        config = {
            "connector.class": f"{FILE}SourceConnector", "file": str(source), "topic": topic,
            "value.converter": JSON, "value.converter.schemas.enable": "false", "transforms": "hoist,insert,rename",
            "transforms.hoist.type": f"{place}HoistField$Value", "transforms.hoist.field": "line",
            "transforms.insert.type": f"{place}InsertField$Value", "transforms.insert.static.field": "origin",
            "transforms.insert.static.value": "web-1",
            "transforms.rename.type": f"{place}ReplaceField$Value", "transforms.rename.renames": "line:message",
        }  # fmt: skip
        return config, ended(topic, count, b'"message":"the last line of all"')

    def mirror(kind: str):
        config = {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "source.cluster.alias": kind, "target.cluster.alias": "here", "topics": "mirrored",
            "source.cluster.bootstrap.servers": servers, "target.cluster.bootstrap.servers": servers,
            "key.converter": BYTES, "value.converter": BYTES, "header.converter": BYTES,
            "replication.factor": "1", "offset-syncs.topic.replication.factor": "1",
        }  # fmt: skip
        return config, ended(f"{kind}.mirrored", mirrored, values[-1])

    return [
        ("file source", count, file_source),
        ("file sink", count, file_sink),
        ("JSON with three transforms", count, transforms),
        ("mirror", mirrored, mirror),
    ]


def jdbc_cases(log, postgres: PostgresServer, count: int, tasks: int):
    """The cases of a sink to PostgreSQL, inserts and upserts of structs with five fields, in each one's own settings."""
    fields = (("id", "int64"), ("name", "string"), ("amount", "double"), ("paid", "boolean"), ("at", "int64"))
    schema = {"type": "struct", "optional": False, "fields": [
        {"field": name, "type": kind, "optional": name != "id",
         **({"name": "org.apache.kafka.connect.data.Timestamp", "version": 1} if name == "at" else {})}
        for name, kind in fields
    ]}  # fmt: skip
    head = json.dumps({"schema": schema})[:-1]
    fill(log, "rows", [
        f'{head}, "payload": {{"id": {n}, "name": "customer {n}", "amount": {n / 7}, "paid": {"true" if n % 2 else "false"}, '
        f'"at": {1_760_000_000_000 + n}}}}}'.encode()
        for n in range(count)
    ], tasks)  # fmt: skip
    java = {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector", "connection.username": "postgres",
        "connection.password": "none", "connection.url": f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres",
        "primary.key.mode": "record_value", "primary.key.fields": "id", "schema.evolution": "basic",
    }  # fmt: skip
    own = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector", "connection.user": "postgres",
        "connection.url": f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres", "pk.mode": "record_value",
        "pk.fields": "id", "auto.create": "true",
    }  # fmt: skip
    table_format = {"java": "collection.name.format", "penstock": "table.name.format"}

    def sink(mode: str):
        def make(kind: str):
            table = f"{kind}_{mode}"
            config = {
                **(java if kind == "java" else own), "topics": "rows", "tasks.max": str(tasks), "insert.mode": mode,
                table_format[kind]: table,
                "value.converter": JSON, "value.converter.schemas.enable": "true",
            }  # fmt: skip

            def done() -> bool:
                (is_there,) = postgres.execute(f"SELECT to_regclass('{table}') IS NOT NULL")[0]
                return is_there and postgres.execute(f"SELECT count(*) FROM {table}")[0][0] >= count

            return config, done

        return make

    return [(f"JDBC sink, {mode}", count, sink(mode)) for mode in ("insert", "upsert")]


def mirror_command(servers: str, folder: Path, done, records: int) -> dict[str, float]:
    """The same mirror by ``penstock mirror``, which copies batches as columns."""
    file = folder / "mm2.properties"
    file.write_text(
        f"clusters=columns,here\ncolumns.bootstrap.servers={servers}\nhere.bootstrap.servers={servers}\n"
        "columns->here.enabled=true\ncolumns->here.topics=mirrored\nemit.heartbeats.enabled=false\n"
        "emit.checkpoints.enabled=false\n"
    )
    began = time.monotonic()
    with (folder / "mirror.log").open("wb") as out:
        process = subprocess.Popen([*PENSTOCK, "mirror", str(file)], stdout=out, stderr=out, cwd=folder)
    try:
        with TreeWatch(process.pid) as watch:
            while not done():
                if process.poll() is not None or time.monotonic() - began > PATIENCE_S:
                    raise RuntimeError(f"penstock mirror: {(folder / 'mirror.log').read_text()[-500:]}")
                time.sleep(0.05)
            seconds, used = time.monotonic() - began, tree_cpu_s(process.pid)
    finally:
        process.terminate()
        process.wait(30)
    return {
        "seconds": round(seconds, 2), "records_per_s": round(records / seconds), "cpu_s": round(used, 2),
        "cpu_us_per_record": round(used / records * 1e6, 1), "peak_bytes": watch.peak_bytes,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--records", type=int, default=300_000, help="lines of the file, and records of the sink's topic"
    )
    parser.add_argument("--mirror-records", type=int, default=1_000_000)
    parser.add_argument(
        "--jdbc-records", type=int, default=200_000, help="rows of the JDBC sink, if PostgreSQL is there"
    )
    parser.add_argument("--only", default="", help="the cases whose names have this text")
    parser.add_argument("--tasks", type=int, default=1, help="tasks of the JDBC sink, and partitions of its topic")
    parser.add_argument("--mode", default="distributed", choices=("distributed", "standalone"))
    parser.add_argument("--order", default="java,penstock", help="the workers, one after the other")
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE, a setting of Penstock's worker")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "connect.json")
    options = parser.parse_args()
    results: dict[str, object] = {
        "facts": facts("bench/connect.py"),
        "records": options.records,
        "mirror_records": options.mirror_records,
    }
    with tempfile.TemporaryDirectory(prefix="connect-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        broker = stack.enter_context(Broker(BrokerSettings(folder / "kafka", free_port(), free_port())))
        servers = broker.settings.bootstrap_servers
        log = stack.enter_context(open_log(servers))
        made = cases(log, servers, folder, (options.records, options.mirror_records))
        if missing_postgres() is None:
            postgres = PostgresServer()
            stack.callback(postgres.stop)
            made += jdbc_cases(log, postgres, options.jdbc_records, options.tasks)
        for kind in options.order.split(","):
            own = dict(each.split("=", 1) for each in options.set) if kind == "penstock" else {}
            worker = Worker(kind, options.mode, servers, folder, own)
            found: dict[str, object] = {}
            try:
                found |= worker.started()
                print(kind, "start", found, flush=True)
                for case, records, make in made:
                    if options.only in case:
                        found[case] = worker.measured(f"{kind}-{case}".replace(" ", "-"), *make(kind), records)
                        print(kind, case, found[case], flush=True)
            except RuntimeError:
                print((folder / f"{kind}.log").read_text(errors="replace")[-3000:])
                raise
            finally:
                worker.close()
            results[kind] = found
        if options.only in "mirror":
            case, records, make = next(each for each in made if each[0] == "mirror")
            results["penstock mirror"] = mirror_command(servers, folder, make("columns")[1], records)
            print("penstock mirror", results["penstock mirror"])
    options.output.write_text(json.dumps(results, indent=1) + "\n")
    shutil.rmtree(name, ignore_errors=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
