"""Latency of a peer: w3's topology fed at a fixed rate.

A record's time ends when an output that includes it is in the topic (broker's append time): the amounts are 1, so the sum
of a key says how many of its records an output includes. The first seconds warm the peer up and are left out.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from confluent_kafka import Producer

import broker_topics as topics
from datasets import N_KEYS, PARTITIONS
from peer_run import PeerRun
from peer_setup import Peer

WARM_UP_S = 5
READY_S = 60
DRAIN_S = 5
TICK_S = 0.001


def measure(
    bootstrap: str, root: Path, peer: Peer, installed: Path, *, exactly_once: bool, rate: int, seconds: int,
    conf: dict[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Median, 90th, 99th percentile and maximum in milliseconds of ``rate`` records/s for ``seconds`` after warm-up."""
    application = f"bench-{peer.name}-latency-{time.time_ns() // 1_000_000}"
    source, out = f"{application}-in", f"{application}-out"
    topics.create(bootstrap, source, {})
    topics.create(bootstrap, out, {"message.timestamp.type": "LogAppendTime"})
    environment = {
        "BOOTSTRAP": bootstrap, "WORKLOAD": "w3", "APP_ID": application, "TOPIC_SUMS": source, "TOPIC_OUT": out,
        "EXPECT_PROCESSED": "0", "TAIL": "1", "GUARANTEE": "eos" if exactly_once else "alo",
        "PENSTOCK_CONF": json.dumps({"commit.interval.ms": "0", **(conf or {})}),
        "CACHE_BYTES": "0",  # with its cache, Kafka Streams keeps results back until the commit, every 30 s
    }  # fmt: skip
    row: dict[str, Any] = {
        "peer": peer.name, "exactly_once": exactly_once, "rate": rate, "records": rate * (seconds + WARM_UP_S),
        "processes": peer.processes, "p50_ms": None,
    }  # fmt: skip
    watch = topics.Watch(bootstrap)
    state, log = root / application, root / f"{application}.log"
    producer = Producer(topics.client(bootstrap) | {"linger.ms": 0, "acks": 1, "partitioner": "murmur2_random"})
    try:
        with PeerRun(peer, installed, environment, state, log) as run:
            for partition in range(PARTITIONS):  # one record each: the peer is ready when it has answered all
                producer.produce(source, b"1", f"probe{partition}", partition)
            producer.flush(READY_S)
            if not _ready(run, watch, out):
                return row | {"detail": f"no answer within {READY_S} s"}
            row["ready_after_s"] = round(time.time() - run.began, 2)
            sent, measured_from = _send(producer, source, rate, seconds, run)
            _drained(watch, out, run)
        found = watch.read(out)
    finally:
        watch.close()
        topics.delete(bootstrap, application)
        shutil.rmtree(state, ignore_errors=True)
    return row | _figures(found, sent, measured_from) | {"peak_pss_mb": round(run.peak_pss / 2**20)}


def _ready(run: PeerRun, watch: topics.Watch, out: str) -> bool:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and run.look():
        if watch.held(out) >= PARTITIONS:
            return True
        time.sleep(0.1)
    return False


def _send(
    producer: Producer, topic: str, rate: int, seconds: int, run: PeerRun
) -> tuple[dict[str, list[int]], int]:  # fmt: skip
    """Key -> when its records were sent, and from when on they count."""
    keys = np.random.default_rng(7).integers(0, N_KEYS, rate * (seconds + WARM_UP_S))
    sent: dict[str, list[int]] = defaultdict(list)
    begin, looked = time.time(), 0.0
    for number, key_number in enumerate(keys.tolist()):
        while time.time() < begin + number / rate:
            producer.poll(0)
            time.sleep(TICK_S)
        now, key = int(time.time() * 1000), f"k{key_number:06d}"
        sent[key].append(now)
        producer.produce(topic, b"1", key, timestamp=now)
        if time.time() - looked > 1:
            looked = time.time()
            run.look()
    producer.flush(READY_S)
    return sent, int((begin + WARM_UP_S) * 1000)


def _drained(watch: topics.Watch, out: str, run: PeerRun) -> None:
    """Waits until the output topic has not grown for a while."""
    size, grown = -1, time.time()
    while time.time() - grown < DRAIN_S and run.look():
        now = watch.held(out)
        if now != size:
            size, grown = now, time.time()
        time.sleep(0.1)


def _figures(found: pl.DataFrame, sent: dict[str, list[int]], measured_from: int) -> dict[str, Any]:
    waited: list[int] = []
    answered = 0
    done: dict[str, int] = defaultdict(int)
    for key, value, at in found.iter_rows():
        times = sent.get(key, ())
        for sent_at in times[done[key] : int(value)]:
            answered += 1
            if sent_at >= measured_from:
                waited.append(at - sent_at)
        done[key] = max(done[key], int(value))
    if not waited:
        return {"answered": answered, "detail": "no record was answered"}
    p50, p90, p99 = (round(float(np.percentile(waited, part))) for part in (50, 90, 99))
    return {"answered": answered, "p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "max_ms": max(waited)}
