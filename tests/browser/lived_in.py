"""A set-up as it is after some minutes of work: three applications, a worker with a failing connector, SQL, a registry.

The applications are programs of their own on Spark: one in stream threads with some 39 nodes that drops records, one in
micro-batches, and one that a record has ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from eventually import eventually
from penstock.base.clock import unix_ms
from penstock.cli.servers.console_sources import ConnectorsOfWorker, SqlServerClient
from penstock.console.applications import Applications
from penstock.console.schemas import Schemas
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.console.web.site import Permissions, Site
from penstock.log.base import TopicPartition
from penstock.log.open import open_log
from penstock.log.topic_formats import TopicFormat, note_formats
from penstock.serde.registry.service import Registry
from penstock.sql.server import SqlService, server
from penstock.sql.session import SqlSession
from penstock.tools.registry_server import server as registry_server
from standalone_worker import standalone_worker

from .recorded import records

__all__ = ["APPLICATIONS", "PAGES", "lived_in"]

APPLICATIONS = ("shop", "words", "broken")
_FILE = "org.apache.kafka.connect.file.FileStream"
_OF_APPLICATIONS = ("/", "/topology", "/batches", "/tasks", "/errors", "/stores")
PAGES = (
    *(f"{path}?app={app}" for app in APPLICATIONS for path in _OF_APPLICATIONS),
    "/stores/by-city-1?app=shop&ask=1&by=all", "/topology?app=shop&node=by-city-1", "/topics", "/topics/orders", "/topics/orders/0/5",
    "/topics/orders?filter=value.total+%3E+430", "/topics/orders/facts", "/topics/shop-bad", "/topics/shop-bad/0/0",
    "/groups", "/groups/shop", "/groups/audit", "/connectors", "/connectors?name=to-nowhere", "/schemas",
    "/schemas?subject=orders-value&version=2", "/sql", "/there-is-no-such-page",
)  # fmt: skip

_PROGRAMS = """
import json

from penstock import Consumed, Grouped, Materialized, Produced, StreamsBuilder, Topology

STRINGS = Produced(key_serde="string", value_serde="string")


def parse_order(text):
    order = json.loads(text)
    if order["total"] < 0:
        raise ValueError(f"order {order['id']} costs {order['total']}")
    return order


def city_of(_, order):
    return order["city"]


def priced(order):
    return {**order, "price": order["total"] / max(order["items"], 1)}


def shop():
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed(key_serde="string", value_serde="string")).map_values(parse_order)
    for n in range(4):
        part = orders.filter(lambda _, order, n=n: order["id"] % 4 == n).map_values(priced)
        grouped = part.group_by(city_of, Grouped(key_serde="string", value_serde="json"))
        counts = grouped.count(Materialized(f"by-city-{n}", key_serde="string"), name=f"by-city-{n}")
        counts.to_stream().map_values(str).to(f"cities-{n}", STRINGS)
    return builder.build()


def words():
    builder = StreamsBuilder()
    lines = builder.stream("lines", Consumed(key_serde="string", value_serde="string"))
    counts = lines.flat_map_values(str.split).group_by(lambda _, word: word, Grouped(key_serde="string", value_serde="string"))
    counts.count(Materialized("word-counts")).to_stream().to("words", Produced(key_serde="string", value_serde="long"))
    return builder.build()


def broken():
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed(key_serde="string", value_serde="string"))
    orders.map_values(parse_order).map_values(json.dumps).to("checked", STRINGS)
    return builder.build()
"""
_SETTINGS = {
    "shop": {"processing.exception.handler": "continue", "errors.dead.letter.queue.topic.name": "shop-bad", "num.stream.threads": 2},
    "words": {"processing.mode": "micro_batch"},
    "broken": {"num.stream.threads": 1},
}  # fmt: skip


def _order(n: int, now_ms: int) -> tuple[int, str, str]:
    order = {"id": n, "user": f"u{n % 17}", "total": -1 if n % 211 == 7 else n * 1.5, "items": n % 4,
             "city": ("Roma", "Oslo", "Lima", "Pune")[n % 4], "note": "<b>bold</b> & a rather long note, as people write"}  # fmt: skip
    return now_ms, f"u{n % 17}", json.dumps(order)


@contextmanager
def lived_in(folder: Path, **permissions: bool) -> Iterator[ConsoleServer]:
    """Start all this in a folder, and a console over it, which reports once each application has worked."""
    url = f"sqlite:///{folder / 'log.db'}"
    (folder / "jobs.py").write_text(_PROGRAMS)
    with ExitStack() as stack:
        log = stack.enter_context(open_log(url))
        for topic, partitions in {"orders": 3, "lines": 2, "words": 2, "checked": 1, "shop-bad": 1, **{f"cities-{n}": 1 for n in range(4)}}.items():  # fmt: skip
            log.create_topic(topic, partitions)
        note_formats(log, "shop", {"orders": TopicFormat("string", "json")})
        for partition in range(3):
            log.append("orders", partition, records([_order(n, unix_ms() - 60_000) for n in range(partition, 3000, 3)]))
        for partition in range(2):
            log.append("lines", partition, records([(unix_ms(), "k", f"to be or not {n}") for n in range(500)]))
        log.commit_offsets("audit", {TopicPartition("orders", n): 60 for n in range(3)})
        stopped = threading.Event()
        going = threading.Thread(target=_go_on, args=[url, stopped])
        going.start()
        stack.callback(going.join)
        stack.callback(stopped.set)
        for app in reversed(APPLICATIONS):
            _run(app, url, folder, stack)
        site = Site(stack.enter_context(_applications(log, folder)), log, Permissions(**permissions))
        site.connectors = ConnectorsOfWorker(_worker(folder, stack))
        site.statements, site.schemas = _statements(folder, stack), _schemas(stack)
        console = ConsoleServer(site, ConsoleAddress(port=0, token=None))
        console.start()
        stack.callback(console.close)
        yield console


@contextmanager
def _applications(log, folder: Path) -> Iterator[Applications]:
    found = Applications(log, {"bootstrap.servers": log.url, "state.dir": str(folder / "state")})
    found.open_log = partial(open_log, log.url)
    try:
        yield found
    finally:
        found.close()


def _run(app: str, url: str, folder: Path, stack: ExitStack) -> None:
    """Start an application, and wait until it has written, or until it has ended."""
    settings = {"application.id": app, "state.dir": folder / "state", "spark.master": "local[2]", "spark.ui.enabled": "false",
                "commit.interval.ms": 500, **_SETTINGS[app]}  # fmt: skip
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    command = [sys.executable, "-m", "penstock", "run", f"jobs.py:{app}", "-b", url, *words]
    with (folder / f"{app}.said").open("w") as said:
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, env=os.environ | {"PYTHONPATH": ""})
    stack.callback(process.wait, 120)
    stack.callback(process.terminate)
    facts = lambda: (process.poll(), (folder / f"{app}.said").read_text()[-3000:])  # noqa: E731
    output = {"shop": "cities-0", "words": "words"}.get(app)
    with open_log(url) as log:
        eventually(lambda: process.poll() is not None or (output and log.end_offset(output, 0) > 0), 240, facts=facts)
    assert (process.poll() is None) == (output is not None), facts()


def _go_on(url: str, stopped: threading.Event) -> None:
    """Write more, so that there are rates."""
    n = 3000
    with open_log(url) as log:
        while not stopped.wait(0.2):
            now_ms = unix_ms()
            for partition in range(3):
                log.append("orders", partition, records([_order(n + more, now_ms) for more in range(10)]))
                n += 10
            log.append("lines", n // 30 % 2, records([(now_ms, "k", "to be or not to be")]))


def _worker(folder: Path, stack: ExitStack):
    where = folder / "worker"
    where.mkdir()
    client = stack.enter_context(standalone_worker(where))
    client.put_config("lines", {"name": "lines", "connector.class": f"{_FILE}SourceConnector", "file": str(where / "lines.txt"), "topic": "lines"})  # fmt: skip
    nowhere = {"name": "to-nowhere", "connector.class": f"{_FILE}SinkConnector", "file": str(where / "no" / "such" / "folder" / "out.txt"), "topics": "lines"}  # fmt: skip
    client.put_config("to-nowhere", nowhere)
    return client


def _statements(folder: Path, stack: ExitStack) -> SqlServerClient:
    session = stack.enter_context(SqlSession({"bootstrap.servers": str(folder / "sql.db")}, queries="wait"))
    session.execute(
        "CREATE STREAM clicks (user STRING KEY, ms INT) WITH (kafka_topic='clicks', value_format='JSON', partitions=1);"
    )
    session.execute(
        "CREATE TABLE by_user AS SELECT user, COUNT(*) AS clicks, MAX(ms) AS slowest FROM clicks GROUP BY user;"
    )
    service = SqlService(session)
    running = server(service, port=0)
    running.start()
    stack.callback(running.close)
    stack.callback(service.close)
    client = SqlServerClient(f"http://127.0.0.1:{running.port}")
    stack.callback(client.close)
    return client


def _schemas(stack: ExitStack) -> Schemas:
    serving = registry_server(Registry(), port=0)
    serving.start()
    stack.callback(serving.close)
    made = Schemas({"schema.registry.url": f"http://127.0.0.1:{serving.port}", "schema.registry.timeout": "120"})
    stack.callback(made.close)
    for names in (("id",), ("id", "item"), ("id", "item", "price")):
        fields = [{"name": name, "type": "string", "default": ""} for name in names]
        made.register("orders-value", "AVRO", json.dumps({"type": "record", "name": "Order", "fields": fields}))
    return made
