"""Latency of a peer: a topology fed at a fixed rate.

w3 gets amounts of 1, so the sum of a key says how many of its records an output includes: a record's time ends when the
first such output has reached a consumer. An output of w4 has the timestamp of the order that it counts: its time is that
of the order, through the join, the repartition topic and the count. Under exactly once the consumer reads what is
committed. The first seconds warm the peer up and are left out.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer

import broker_topics as topics
import datasets
from datasets import N_KEYS
from latency_probe import SENDER, Arrival, Arrivals, evenly, percentiles
from peer_run import PeerRun, last_lines
from peer_setup import Peer

PARTITIONS = 2  # a peer has two threads or processes
WARM_UP_S = 30  # of a peer
READY_S = 120
DRAIN_S = 5
LOOK_EVERY = 1_000  # records


class Sums:
    """Amounts of 1 for w3."""

    inputs = ("sums",)

    def __init__(self) -> None:
        self._sent: dict[bytes, list[float]] = defaultdict(list)

    def prepare(self, producer: Producer, names: dict[str, str]) -> None:
        """Send one record to each partition: the peer is ready when it has answered all."""
        for partition in range(PARTITIONS):
            producer.produce(names["sums"], b"1", f"probe{partition}", partition)

    def records(self, count: int) -> Iterator[tuple[bytes, bytes]]:
        for key in np.random.default_rng(7).integers(0, N_KEYS, count).tolist():
            yield f"k{key:06d}".encode(), b"1"

    def note(self, key: bytes, at_ms: float) -> None:
        self._sent[key].append(at_ms)

    def waited(self, seen: list[Arrival]) -> Iterator[tuple[float, float]]:
        """When each answered record was sent, and how long it took; milliseconds."""
        done: dict[bytes, int] = defaultdict(int)
        for one in seen:
            included = int(one.value)
            for sent_at in self._sent.get(one.key, ())[done[one.key] : included]:
                yield sent_at, one.at - sent_at
            done[one.key] = max(done[one.key], included)


class Orders:
    """Orders for w4, behind the users with whom they are joined."""

    inputs = ("orders", "users")

    def prepare(self, producer: Producer, names: dict[str, str]) -> None:
        """Send all users, and an order to each partition."""
        before = int(time.time() * 1000) - 3_600_000
        for user in datasets.users().iter_rows(named=True):
            producer.produce(names["users"], user["value"], user["key"], timestamp=before)
            producer.poll(0)
        for partition in range(PARTITIONS):
            probe = {"name": "probe", "city": f"probe{partition}"}
            producer.produce(names["users"], json.dumps(probe), f"probe{partition}", partition, timestamp=before)
        producer.flush(READY_S)
        for partition in range(PARTITIONS):
            producer.produce(names["orders"], b'{"item": "none"}', f"probe{partition}", partition)

    def records(self, count: int) -> Iterator[tuple[bytes, bytes]]:
        for frame in datasets.orders(count):
            for key, value in frame.select("key", "value").iter_rows():
                yield key.encode(), value.encode()

    def note(self, key: bytes, at_ms: float) -> None:
        """An output says by its timestamp which order it is of."""

    def waited(self, seen: list[Arrival]) -> Iterator[tuple[float, float]]:
        for one in seen:
            if not one.key.startswith(b"probe"):
                yield float(one.timestamp), one.at - one.timestamp


FEEDS = {"w3": Sums, "w4": Orders}


def measure(
    bootstrap: str, root: Path, peer: Peer, installed: Path, workload: str = "w3", *, exactly_once: bool, rate: int,
    seconds: int, conf: dict[str, str] | None = None, commit_ms: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Median, 90th, 99th percentile and maximum in milliseconds of ``rate`` records/s for ``seconds`` after warm-up."""
    application = f"bench-{peer.name}-latency-{time.time_ns() // 1_000_000}"
    feed, out = FEEDS[workload](), f"{application}-out"
    names = {name: f"{application}-{name}" for name in feed.inputs}
    for topic in (*names.values(), out):
        topics.create(bootstrap, topic, {}, PARTITIONS)
    own = {"commit.interval.ms": str(commit_ms or 0), "statestore.cache.max.bytes": "0"}
    environment = {
        "BOOTSTRAP": bootstrap, "WORKLOAD": workload, "APP_ID": application, "TOPIC_OUT": out,
        "EXPECT_PROCESSED": "0", "TAIL": "1", "GUARANTEE": "eos" if exactly_once else "alo",
        "PENSTOCK_CONF": json.dumps(own | (conf or {})),
        "CACHE_BYTES": "0",  # with its cache, Kafka Streams keeps results back until the commit, every 30 s
        **{f"TOPIC_{name.upper()}": topic for name, topic in names.items()},
    }  # fmt: skip
    if commit_ms is not None:
        environment["COMMIT_MS"] = str(commit_ms)
    row: dict[str, Any] = {
        "workload": workload, "peer": peer.name, "exactly_once": exactly_once, "commit_interval_ms": commit_ms, "rate": rate,
        "records": rate * (seconds + WARM_UP_S), "processes": peer.processes, "p50_ms": None,
    }  # fmt: skip
    state, log = root / application, root / f"{application}.log"
    producer = Producer(topics.client(bootstrap) | SENDER)
    isolation = "read_committed" if exactly_once else "read_uncommitted"
    arrivals = Arrivals(topics.client(bootstrap), out, PARTITIONS, isolation)
    try:
        with arrivals, PeerRun(peer, installed, environment, state, log) as run:
            feed.prepare(producer, names)
            producer.flush(READY_S)
            if not _ready(run, arrivals):
                return row | {"detail": f"no answer within {READY_S} s: {last_lines(log)}"}
            row["ready_after_s"] = round(time.time() - run.began, 2)
            measured_from = _send(producer, names[feed.inputs[0]], feed, rate, seconds, run)
            cpu, began = run.cpu_at(time.time()), run.cpu_at(measured_from / 1000)
            _drained(arrivals, run)
    finally:
        topics.delete(bootstrap, application)
        shutil.rmtree(state, ignore_errors=True)
    used = {"cores_used": round((cpu - began) / max(seconds, 1), 2), "peak_pss_mb": round(run.peak_pss / 2**20)}
    return row | _figures(feed, arrivals.seen, measured_from) | used


def _ready(run: PeerRun, arrivals: Arrivals) -> bool:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and run.look():
        if len({one.key for one in arrivals.seen}) >= PARTITIONS:
            return True
        time.sleep(0.1)
    return False


def _send(producer: Producer, topic: str, feed: Any, rate: int, seconds: int, run: PeerRun) -> float:
    """From when on the records count."""
    records = list(feed.records(rate * (seconds + WARM_UP_S)))
    begin = time.time()
    for number in evenly(rate, len(records)):
        key, value = records[number]
        now = time.time() * 1000
        feed.note(key, now)
        producer.produce(topic, value, key, timestamp=int(now))
        producer.poll(0)
        if number % LOOK_EVERY == 0:
            run.look()
    producer.flush(READY_S)
    run.look()
    return (begin + WARM_UP_S) * 1000


def _drained(arrivals: Arrivals, run: PeerRun) -> None:
    """Waits until nothing has come for a while."""
    size, grown = -1, time.time()
    while time.time() - grown < DRAIN_S and run.look():
        if len(arrivals.seen) != size:
            size, grown = len(arrivals.seen), time.time()
        time.sleep(0.1)


def _figures(feed: Any, seen: list[Arrival], measured_from: float) -> dict[str, Any]:
    all_waited = list(feed.waited(seen))
    waited = [took for sent_at, took in all_waited if sent_at >= measured_from]
    if not waited:
        return {"answered": len(all_waited), "detail": "no record was answered"}
    return {"answered": len(all_waited), **percentiles(waited)}


def typical(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The run with the median of the medians (of an even number the larger one), with the percentiles of all runs."""
    done = sorted((row for row in rows if row["p50_ms"] is not None), key=lambda row: row["p50_ms"])
    if len(done) < len(rows) or len(rows) == 1:
        return rows[-1] if not done else done[len(done) // 2]
    runs = {f"runs_{name}": [row[name] for row in rows] for name in ("p50_ms", "p90_ms", "p99_ms")}
    return done[len(done) // 2] | runs
