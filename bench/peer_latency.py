"""Latency of a peer: w3's topology fed at a fixed rate.

The amounts are 1, so the sum of a key says how many of its records an output includes: a record's time ends when the
first such output has reached a consumer. Under exactly once the consumer reads what is committed. The first seconds
warm the peer up and are left out.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer

import broker_topics as topics
from datasets import N_KEYS
from latency_probe import Arrival, Arrivals, evenly, percentiles
from peer_run import PeerRun, last_lines
from peer_setup import Peer

PARTITIONS = 2  # a peer has two threads or processes
WARM_UP_S = 15
READY_S = 120
DRAIN_S = 5
LOOK_EVERY = 1_000  # records


def measure(
    bootstrap: str, root: Path, peer: Peer, installed: Path, *, exactly_once: bool, rate: int, seconds: int,
    conf: dict[str, str] | None = None, commit_ms: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Median, 90th, 99th percentile and maximum in milliseconds of ``rate`` records/s for ``seconds`` after warm-up."""
    application = f"bench-{peer.name}-latency-{time.time_ns() // 1_000_000}"
    source, out = f"{application}-in", f"{application}-out"
    topics.create(bootstrap, source, {}, PARTITIONS)
    topics.create(bootstrap, out, {}, PARTITIONS)
    own = {"commit.interval.ms": str(commit_ms or 0)}
    environment = {
        "BOOTSTRAP": bootstrap, "WORKLOAD": "w3", "APP_ID": application, "TOPIC_SUMS": source, "TOPIC_OUT": out,
        "EXPECT_PROCESSED": "0", "TAIL": "1", "GUARANTEE": "eos" if exactly_once else "alo",
        "PENSTOCK_CONF": json.dumps(own | (conf or {})),
        "CACHE_BYTES": "0",  # with its cache, Kafka Streams keeps results back until the commit, every 30 s
    }  # fmt: skip
    if commit_ms is not None:
        environment["COMMIT_MS"] = str(commit_ms)
    row: dict[str, Any] = {
        "peer": peer.name, "exactly_once": exactly_once, "commit_interval_ms": commit_ms, "rate": rate, "records": rate * (seconds + WARM_UP_S),
        "processes": peer.processes, "p50_ms": None,
    }  # fmt: skip
    state, log = root / application, root / f"{application}.log"
    producer = Producer(
        topics.client(bootstrap)
        | {"linger.ms": 0, "acks": 1, "partitioner": "murmur2_random", "socket.nagle.disable": True}
    )
    isolation = "read_committed" if exactly_once else "read_uncommitted"
    arrivals = Arrivals(topics.client(bootstrap), out, PARTITIONS, isolation)
    try:
        with arrivals, PeerRun(peer, installed, environment, state, log) as run:
            for partition in range(PARTITIONS):  # one record each: the peer is ready when it has answered all
                producer.produce(source, b"1", f"probe{partition}", partition)
            producer.flush(READY_S)
            if not _ready(run, arrivals):
                return row | {"detail": f"no answer within {READY_S} s: {last_lines(log)}"}
            row["ready_after_s"] = round(time.time() - run.began, 2)
            sent, measured_from = _send(producer, source, rate, seconds, run)
            cpu, began = run.cpu_at(time.time()), run.cpu_at(measured_from / 1000)
            _drained(arrivals, run)
    finally:
        topics.delete(bootstrap, application)
        shutil.rmtree(state, ignore_errors=True)
    used = {"cores_used": round((cpu - began) / seconds, 2), "peak_pss_mb": round(run.peak_pss / 2**20)}
    return row | _figures(arrivals.seen, sent, measured_from) | used


def _ready(run: PeerRun, arrivals: Arrivals) -> bool:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and run.look():
        if len({one.key for one in arrivals.seen}) >= PARTITIONS:
            return True
        time.sleep(0.1)
    return False


def _send(
    producer: Producer, topic: str, rate: int, seconds: int, run: PeerRun
) -> tuple[dict[bytes, list[float]], float]:  # fmt: skip
    """Key -> when its records were sent, and from when on they count."""
    keys = np.random.default_rng(7).integers(0, N_KEYS, rate * (seconds + WARM_UP_S)).tolist()
    sent: dict[bytes, list[float]] = defaultdict(list)
    begin = time.time()
    for number in evenly(rate, len(keys)):
        now, key = time.time() * 1000, f"k{keys[number]:06d}".encode()
        sent[key].append(now)
        producer.produce(topic, b"1", key, timestamp=int(now))
        producer.poll(0)
        if number % LOOK_EVERY == 0:
            run.look()
    producer.flush(READY_S)
    run.look()
    return sent, (begin + WARM_UP_S) * 1000


def _drained(arrivals: Arrivals, run: PeerRun) -> None:
    """Waits until nothing has come for a while."""
    size, grown = -1, time.time()
    while time.time() - grown < DRAIN_S and run.look():
        if len(arrivals.seen) != size:
            size, grown = len(arrivals.seen), time.time()
        time.sleep(0.1)


def _figures(seen: list[Arrival], sent: dict[bytes, list[float]], measured_from: float) -> dict[str, Any]:
    waited: list[float] = []
    answered = 0
    done: dict[bytes, int] = defaultdict(int)
    for one in seen:
        included = int(one.value)
        for sent_at in sent.get(one.key, ())[done[one.key] : included]:
            answered += 1
            if sent_at >= measured_from:
                waited.append(one.at - sent_at)
        done[one.key] = max(done[one.key], included)
    if not waited:
        return {"answered": answered, "detail": "no record was answered"}
    return {"answered": answered, **percentiles(waited)}
