"""Stream threads: what an application costs as one thing grows, with the slope between sizes."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import psutil
import pyarrow as pa

from continuous_idle import processes, seconds_of
from machine import pss
from penstock import Consumed, Grouped, KafkaStreams, Produced, Repartitioned, StreamsBuilder
from penstock.engines.kafka_streams import State
from penstock.log.base import TopicLog
from penstock.log.open import open_log
from penstock.sql import SqlSession
from scale_partitions import broker, topology, write

TIMEOUT_S = 1_500.0
IDLE_S = 10.0
SETTLE_S = 3.0
ROUNDS = 3
PARTITIONS = 4
ROUND_BYTES = 40 << 20
ROUND_RECORDS = 100_000
ROUND_PART = 10_000
TEXTS = Consumed(key_serde="string", value_serde="string")


@dataclass(frozen=True)
class Case:
    """One thing that grows: its sizes, and the function that measures one of them.

    Attributes:
        sizes: In ascending order.
        unit: What a size counts.
        measure: Takes the size and the address of a log (None: an embedded one of its own).
    """

    sizes: tuple[int, ...]
    unit: str
    measure: Callable[[int, str | None], dict[str, Any]]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", nargs="+", choices=sorted(CASES), default=list(CASES))
    parser.add_argument("--sizes", type=int, nargs="+", help="in place of the case's own")
    parser.add_argument("--log", choices=("sqlite", "kafka"), default="sqlite")


def run(given: argparse.Namespace) -> list[dict[str, Any]]:
    from scale import alone

    found: list[dict[str, Any]] = []
    for name in given.cases:
        rows: list[dict[str, Any]] = []
        for size in given.sizes or CASES[name].sizes:
            with broker(given.log) as servers:
                row = alone(measured, name, size, servers, timeout_s=TIMEOUT_S)
            rows.append({"case": name, "unit": CASES[name].unit, "size": size, "log": given.log} | row)
            rows[-1] |= {"slopes": slopes(rows[-2], rows[-1])} if len(rows) > 1 else {}
            print(rows[-1], flush=True)
        found += rows
    return found


def slopes(before: dict[str, Any], now: dict[str, Any]) -> dict[str, float]:
    """How each figure grows from one size to the next: 1.0 in proportion to the size, 0.0 not at all, 2.0 with its square."""
    factor = math.log(now["size"] / before["size"])
    figures = [
        name for name in now if name.endswith(("_s", "_mb", "_cores")) and min(now[name], before.get(name, 0)) > 0
    ]
    return {name: round(math.log(now[name] / before[name]) / factor, 2) for name in figures}


def measured(name: str, size: int, servers: str | None) -> dict[str, Any]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return CASES[name].measure(size, servers) | {"load": round(os.getloadavg()[0], 1)}


@dataclass
class Watched:
    """The processes of an application and what they have used; those of a broker do not count."""

    seen: dict[int, float] = field(default_factory=dict)

    def cpu_s(self) -> float:
        """CPU seconds so far, also of those that have ended since the last look."""
        for process in _all_processes():
            self.seen[process.pid] = max(self.seen.get(process.pid, 0.0), seconds_of(process))
        return sum(self.seen.values())

    def mb(self) -> int:
        """Memory of all; pages that several share count once."""
        return sum(pss(process) for process in _all_processes()) >> 20


def _all_processes() -> list[psutil.Process]:
    return [process for kind in processes().values() for process in kind]


@contextlib.contextmanager
def opened(servers: str | None, topics: dict[str, int]) -> Iterator[tuple[TopicLog, str, Path]]:
    """A log with these topics and their numbers of partitions, its address, and a folder."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        url = servers or f"sqlite:///{directory}/log.db"
        with open_log(url) as log:
            for topic, partitions in topics.items():
                log.create_topic(topic, partitions, {"retention.ms": "-1"})
            yield log, url, Path(directory)


def started(application: Any, url: str, root: Path) -> KafkaStreams:
    """The application, when its stream threads run and have all their state."""
    config = {
        "application.id": "scale",
        "bootstrap.servers": url,
        "state.dir": str(root / "work"),
        "spark.master": "local[2]",
        "commit.interval.ms": 100,
        "statestore.cache.max.bytes": 0,
    }
    app = KafkaStreams(application, config)
    app.start()
    until(lambda: app.state is State.RUNNING, app)
    return app


def until(is_so: Callable[[], bool], app: KafkaStreams | None = None) -> None:
    """Wait; a timeout is that of the whole measurement."""
    while not is_so():
        if app is not None and app.state in (State.ERROR, State.NOT_RUNNING):
            raise SystemExit(f"the application has ended: {app.state}")
        time.sleep(0.02)


def outputs(log: TopicLog, topics: tuple[str, ...] = ("out",)) -> int:
    """Offsets of all output partitions: at least once, each output has one."""
    return sum(log.end_offsets(topics).values())


def facts_of(
    begin: Callable[[], KafkaStreams | None], log: TopicLog, one: Callable[[], int], topics: tuple[str, ...] = ("out",)
) -> dict[str, Any]:
    """Start it, send rounds of records (``one`` gives how many outputs follow), leave it idle."""
    watched = Watched()
    at, before = time.perf_counter(), watched.cpu_s()
    app = begin()
    wanted = outputs(log, topics) + one()
    until(lambda: outputs(log, topics) >= wanted, app)
    facts = {"start_s": round(time.perf_counter() - at, 2), "start_cpu_s": round(watched.cpu_s() - before, 2)}
    rounds = []
    for _ in range(ROUNDS):
        time.sleep(SETTLE_S)
        at, before, own = time.perf_counter(), watched.cpu_s(), time.thread_time()
        wanted = outputs(log, topics) + one()
        until(lambda: outputs(log, topics) >= wanted, app)  # noqa: B023 - called at once
        own = time.thread_time() - own  # to write the records and to look for outputs, which is not the application's
        rounds.append((time.perf_counter() - at, watched.cpu_s() - before - own))
    facts |= {
        name: round(median(each), 3)
        for name, each in zip(("round_s", "round_cpu_s"), zip(*rounds, strict=True), strict=True)
    }
    time.sleep(SETTLE_S)
    at, before = time.perf_counter(), watched.cpu_s()
    time.sleep(IDLE_S)
    facts["idle_cores"] = round((watched.cpu_s() - before) / (time.perf_counter() - at), 3)
    facts["all_mb"] = watched.mb()
    facts["processes"] = len(_all_processes())
    if app is not None:
        app.close()
    return facts


def partitions(count: int, servers: str | None) -> dict[str, Any]:
    """A count over so many partitions; a round is one record in each."""
    with opened(servers, {"in": count, "out": count}) as (log, url, root):
        return facts_of(lambda: started(topology("count"), url, root), log, lambda: write(log, range(count), 1))


def levels(count: int, servers: str | None) -> dict[str, Any]:
    """A chain of so many repartitions, each a sub-topology with four tasks; a round is 10,000 records."""
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXTS)
    for number in range(count):
        stream = stream.repartition(Repartitioned(f"level-{number}", partitions=PARTITIONS))
    stream.to("out")
    with opened(servers, {"in": PARTITIONS, "out": PARTITIONS}) as (log, url, root):
        return facts_of(lambda: started(builder.build(), url, root), log, lambda: write(log, range(PARTITIONS), 2_500))


def topics(count: int, servers: str | None) -> dict[str, Any]:
    """A pattern that so many topics match, of one partition each; a round is one record in each."""
    builder = StreamsBuilder()
    builder.stream(re.compile("in-.*"), TEXTS).map_values(pl.col("value").str.to_uppercase()).to(
        "out", Produced(value_serde="string")
    )
    names = [f"in-{number}" for number in range(count)]

    def one() -> int:
        record = pa.RecordBatch.from_pydict({"timestamp": pa.array([1]), "value": pa.array([b"a"], pa.large_binary())})
        for name in names:
            log.append(name, 0, record)
        return count

    with opened(servers, dict.fromkeys(names, 1) | {"out": 1}) as (log, url, root):
        return facts_of(lambda: started(builder.build(), url, root), log, one)


def record_bytes(size: int, servers: str | None) -> dict[str, Any]:
    """Records of this size; a round is 40 MB of them."""
    random = np.random.default_rng(1)
    count = ROUND_BYTES // size
    texts = [random.bytes(size // 2).hex().encode() for _ in range(min(count, 400))]

    def one() -> int:
        for partition in range(PARTITIONS):
            some = [texts[number % len(texts)] for number in range(partition, count, PARTITIONS)]
            step = max(1, (4 << 20) // size)
            for begin in range(0, len(some), step):
                values = pa.array(some[begin : begin + step], pa.large_binary())
                times = pa.array(np.full(len(values), 1))
                log.append("in", partition, pa.RecordBatch.from_pydict({"timestamp": times, "value": values}))
        return count

    with opened(servers, {"in": PARTITIONS, "out": PARTITIONS}) as (log, url, root):
        return facts_of(lambda: started(topology("map"), url, root), log, one)


def keys(count: int, servers: str | None) -> dict[str, Any]:
    """A state of so many keys with values of 100 bytes; a round is 100,000 changes of random keys. Then it is restored."""
    builder = StreamsBuilder()
    table = builder.stream("in", TEXTS).group_by_key(Grouped(key_serde="string", value_serde="string"))
    table.aggregate(lambda: "", pl.col("value")).to_stream().map_values(pl.lit("x")).to(
        "out", Produced(value_serde="string")
    )
    random = np.random.default_rng(1)

    def some(numbers: np.ndarray) -> int:
        for begin in range(0, len(numbers), ROUND_PART):
            part = numbers[begin : begin + ROUND_PART]
            owner = part % PARTITIONS
            for partition in range(PARTITIONS):
                mine = part[owner == partition]
                batch = {
                    "timestamp": pa.array(np.full(len(mine), 1)),
                    "key": pa.array([b"key-%012d" % each for each in mine], pa.large_binary()),
                    "value": pa.array(
                        [b"%0100d" % each for each in random.integers(0, 1 << 40, len(mine))], pa.large_binary()
                    ),
                }
                log.append("in", partition, pa.RecordBatch.from_pydict(batch))
        return len(numbers)

    with opened(servers, {"in": PARTITIONS, "out": PARTITIONS}) as (log, url, root):
        loaded = [False]

        def one() -> int:
            if not loaded[0]:
                loaded[0] = True
                return some(np.arange(count))
            return some(random.integers(0, count, ROUND_RECORDS))

        facts = facts_of(lambda: started(builder.build(), url, root), log, one)
        facts |= {"load_s": facts.pop("start_s"), "load_cpu_s": facts.pop("start_cpu_s")}
        shutil.rmtree(root / "work")
        watched = Watched()
        at, before = time.perf_counter(), watched.cpu_s()
        app = started(builder.build(), url, root)
        wanted = outputs(log) + some(np.arange(PARTITIONS))
        until(lambda: outputs(log) >= wanted, app)
        facts |= {"restore_s": round(time.perf_counter() - at, 2), "restore_cpu_s": round(watched.cpu_s() - before, 2)}
        app.close()
        return facts


def queries(count: int, servers: str | None) -> dict[str, Any]:
    """So many persistent queries in one session of Penstock SQL, over one stream; a round is one record, which each has."""
    sinks = tuple(f"s{number}".upper() for number in range(count))

    def begin() -> None:
        session.execute("CREATE STREAM source (id VARCHAR KEY, v VARCHAR) WITH (kafka_topic='in', format='KAFKA');")
        for sink in sinks:
            session.execute(f"CREATE STREAM {sink} AS SELECT id, UCASE(v) AS v FROM source EMIT CHANGES;")

    with opened(servers, {"in": 1}) as (log, url, root):
        config = {"bootstrap.servers": url, "state.dir": str(root / "work"), "commit.interval.ms": 100}
        with SqlSession(config) as session:
            return facts_of(begin, log, lambda: count * write(log, range(1), 1), sinks)


CASES = {
    "partitions": Case((8, 64, 256, 1_000), "partitions", partitions),
    "levels": Case((1, 2, 5, 10, 20), "repartitions", levels),
    "topics": Case((10, 100, 1_000), "topics", topics),
    "bytes": Case((1 << 10, 100 << 10, 1 << 20, 10 << 20), "bytes a record", record_bytes),
    "keys": Case((100_000, 1_000_000, 4_000_000), "keys", keys),
    "queries": Case((1, 5, 10, 50), "queries", queries),
}  # fmt: skip
