"""The benchmark of Spark's real-time mode: latencies at a fixed rate, at least once and exactly once.

python bench/rtm/run.py [--tasks a b c d] [--seconds 20] [--warm-up 8] [--rate 1000] [--guarantees alo eos] [--commit-ms 10]

Records go into a topic of five partitions, results into another, both with the time at which the broker appended a record: a
latency is the result's less the record's. Exactly once, a result may be read when its transaction has ended, so ``read`` is there
too: from the append of the record until a consumer of committed records has the result. The first seconds are cut. All outputs are
compared with Polars'. Spark 4.2.0 runs task a beside, in an environment of its own. Results go to bench/results/rtm.json.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).parents[1]))

import broker_topics as topics
import compare
import machine
from latency_probe import SENDER, Arrivals, evenly, percentiles
from peer_run import PeerRun, last_lines
from peer_setup import ALL, REALTIME, NotInstalledError, Peer
from rtm import tasks

RESULTS = Path(__file__).parents[1] / "results" / "rtm.json"
PEERS = {"penstock": ALL["penstock"], "realtime": REALTIME}
PARTITIONS = 5
READY_S, LOOK_S = 120, 0.1
PROBE = "probe"
APPENDED = topics.FOREVER | compare.APPEND_TIME


def run(
    bootstrap: str, root: Path, peer: Peer, installed: Path, task: str, guarantee: str, given: argparse.Namespace
) -> dict[str, Any]:
    """One run; what goes wrong is in the row."""
    row: dict[str, Any] = {"task": task, "peer": peer.name, "guarantee": guarantee, "ok": False}
    application = f"rtm-{peer.name}-{task}-{guarantee}-{time.time_ns() // 1_000_000}"
    source, out = f"{application}-in", f"{application}-out"
    for topic in (source, out):
        topics.create(bootstrap, topic, APPENDED, PARTITIONS)
    conf = {"commit.interval.ms": str(given.commit_ms)} | given.conf
    environment = {
        "BOOTSTRAP": bootstrap, "WORKLOAD": f"rtm-{task}", "APP_ID": application, "TOPIC_IN": source, "TOPIC_OUT": out,
        "GUARANTEE": guarantee, "EXPECT_PROCESSED": "0", "TAIL": "1", "PENSTOCK_CONF": json.dumps(conf),
    }  # fmt: skip
    state, log = root / application, root / f"{application}.log"
    watch = topics.Watch(bootstrap)
    isolation = "read_committed" if guarantee == "eos" else "read_uncommitted"
    arrivals = Arrivals(topics.client(bootstrap), out, PARTITIONS, isolation)
    try:
        with arrivals, PeerRun(peer, installed, environment, state, log) as running:
            producer = Producer(topics.client(bootstrap) | SENDER)
            for partition in range(PARTITIONS):  # it is ready when it has answered from all
                producer.produce(source, PROBE, f"{PROBE}{partition}", partition)
            producer.flush(READY_S)
            _until(lambda: len(arrivals.seen) >= PARTITIONS, READY_S, running)
            if len(arrivals.seen) < PARTITIONS:
                return row | {"detail": f"no answers after {READY_S} s: {last_lines(log)}"}
            ready = time.time()
            frame = tasks.records(task, given.rate * (given.warm_up + given.seconds))
            keys, values = frame["key"].to_list(), frame["value"].to_list()
            cpu = 0.0
            for number in evenly(given.rate, frame.height):
                producer.produce(source, values[number], keys[number])
                producer.poll(0)
                if number % given.rate == 0:
                    running.look()
                if number == given.rate * given.warm_up:
                    cpu = running.cpu_at(time.time())
            producer.flush(READY_S)
            running.look()
            used = running.cpu_at(time.time()) - cpu
            wanted = tasks.answered(task, frame.with_columns(at=pl.lit(0))).height
            _until(lambda: len(arrivals.seen) >= wanted + PARTITIONS, READY_S, running)
        return row | _figures(task, watch, source, out, arrivals, given) | {
            "ready_after_s": round(ready - running.began, 2), "cores_used": round(used / given.seconds, 2),
            "peak_pss_mb": round(running.peak_pss / 2**20),
        }  # fmt: skip
    except Exception as error:  # noqa: BLE001 - the trouble of one run is not the end of the others
        return row | {"detail": f"{type(error).__name__}: {error}: {last_lines(log)}"}
    finally:
        watch.close()
        topics.delete(bootstrap, application)
        shutil.rmtree(state, ignore_errors=True)


def _until(is_so: Any, limit_s: float, running: PeerRun) -> None:
    end = time.monotonic() + limit_s
    while not is_so() and time.monotonic() < end and running.look():
        time.sleep(LOOK_S)


def _figures(
    task: str, watch: topics.Watch, source: str, out: str, arrivals: Arrivals, given: argparse.Namespace
) -> dict[str, Any]:
    text = {"key": pl.String, "value": pl.String}
    probes = pl.col("key").str.starts_with(PROBE)
    sent, found = (watch.read_bytes(topic, PARTITIONS).cast(text).filter(~probes) for topic in (source, out))
    both, wrong = tasks.matched(task, sent, found)
    if wrong:
        return {"detail": wrong}
    read = pl.DataFrame(
        [(one.key, one.at) for one in arrivals.seen], schema={"key": pl.Binary, "read": pl.Float64}, orient="row"
    )
    number = pl.int_range(pl.len()).over("key").alias("number")
    both = both.join(read.cast({"key": pl.String}).with_columns(number), on=["key", "number"])
    measured = both.filter(pl.col("at") >= sent["at"].min() + given.warm_up * 1_000)
    appended = percentiles((measured["at_out"] - measured["at"]).to_list())
    until_read = percentiles((measured["read"] - measured["at"]).to_list())
    return {
        "ok": True,
        "records": measured.height,
        **appended,
        **{f"read_{name}": ms for name, ms in until_read.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=tasks.TASKS, default=list(tasks.TASKS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--guarantees", nargs="+", choices=("alo", "eos"), default=["alo", "eos"])
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=8)
    parser.add_argument("--commit-ms", type=int, default=10)
    parser.add_argument("--conf", nargs="+", default=[], metavar="KEY=VALUE", help="further settings of Penstock")
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    given.conf = dict(setting.split("=", 1) for setting in given.conf)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    began = time.time()
    report = machine.facts("bench/rtm/run.py") | {
        "rate": given.rate, "seconds": given.seconds, "cut_s": given.warm_up, "commit_interval_ms": given.commit_ms, "results": [],
    }  # fmt: skip
    peers = []
    for name in given.peers:
        try:
            peers.append((PEERS[name], PEERS[name].install()))
        except NotInstalledError as error:
            report["missing"] = {name: str(error)}
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-rtm-"))).absolute()
        broker = stack.enter_context(compare.broker_in(root))
        for task, guarantee in itertools.product(given.tasks, given.guarantees):
            for peer, place in peers:
                if peer is REALTIME and (task, guarantee) != ("a", "alo"):
                    continue  # its connector takes no state from Python, and its sink is at least once
                row = run(broker.settings.bootstrap_servers, root, peer, place, task, guarantee, given)
                names = ("p50_ms", "p99_ms", "read_p50_ms", "read_p99_ms", "cores_used")
                print(
                    task,
                    guarantee,
                    peer.name,
                    *([row[n] for n in names] if row["ok"] else ("WRONG", row["detail"])),
                    flush=True,
                )
                report["results"].append(row)
                given.json.write_text(json.dumps(report | {"took_s": round(time.time() - began)}, indent=1) + "\n")
    print(f"written: {given.json}, after {time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
