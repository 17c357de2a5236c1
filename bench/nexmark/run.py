"""Nexmark's queries over a broker, Penstock beside Kafka Streams in Java, each answer compared with Polars'.

python bench/nexmark/run.py [--n 1000000] [--rate 10000] [--queries q0 q5] [--peers penstock kstreams] [--merge] [--conf KEY=VALUE]

A backlog of events (persons, auctions, bids; JSON) is read from topics of four partitions by two threads, exactly once, all else
at its default. The peers take turns. Rates are events of the query's topics a second, from the first record processed to the
last; CPU seconds are those of all of a peer's processes, per million of these events, with and without its start. A run with a
wrong answer has no rate. Results go to bench/results/nexmark.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
import psutil
from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).parents[1]))

import broker_topics as topics
import compare
import machine
from nexmark import answers, events, queries
from peer_run import LOOK_S, PeerRun, last_lines
from peer_setup import ALL, NotInstalledError, Peer

RESULTS = Path(__file__).parents[1] / "results" / "nexmark.json"
NOT_IN_JAVA = ("q6", "q15", "q16")
LOADING = {
    "linger.ms": 50,
    "batch.size": 500_000,
    "queue.buffering.max.messages": 2_000_000,
    "partitioner": "murmur2_random",
    "enable.idempotence": True,  # a batch that is sent again comes in its place: q18 takes the last bid
}


def load(bootstrap: str, frames: answers.Frames) -> None:
    """Write each kind of event to its topic, and the side table."""
    producer = Producer(topics.client(bootstrap) | LOADING)
    for topic, frame in frames.items():
        topics.create(bootstrap, f"nexmark-{topic}", topics.FOREVER)
        for key, value, timestamp in events.records(topic, frame).iter_rows():
            producer.produce(f"nexmark-{topic}", value.encode(), key.encode(), timestamp=timestamp)
        producer.flush(topics.PATIENCE_S)


class Runs:
    """The broker, the events in it, and the runs over them."""

    def __init__(self, bootstrap: str, broker: psutil.Process, root: Path, given: argparse.Namespace) -> None:
        self._bootstrap, self._broker, self._root, self._given = bootstrap, broker, root, given
        self._events = events.Events(given.n, rate=given.rate)
        self._frames = self._events.frames()

    def load(self) -> None:
        load(self._bootstrap, self._frames)

    def run(self, peer: Peer, installed: Path, query: str) -> dict[str, Any]:
        """One run; what goes wrong is in the row."""
        n = sum(self._frames[topic].height for topic in queries.TOPICS[query] if topic != "side")
        row: dict[str, Any] = {"query": query, "peer": peer.name, "events": n, "ok": False}
        application = f"nexmark-{peer.name}-{query}-{time.time_ns() // 1_000_000}"
        out = f"{application}-out"
        topics.create(self._bootstrap, out, compare.APPEND_TIME)
        environment = {
            "BOOTSTRAP": self._bootstrap, "WORKLOAD": query, "APP_ID": application, "TOPIC_OUT": out, "GUARANTEE": "eos",
            "LONGEST_AUCTION_MS": str(self._events.longest_auction_ms), "EXPECT_PROCESSED": str(n), "UNTIL_QUIET": "1",
            "PENSTOCK_CONF": json.dumps(self._given.conf), **{f"TOPIC_{name.upper()}": f"nexmark-{name}" for name in self._frames},
        }  # fmt: skip
        state, log = self._root / application, self._root / f"{application}.log"
        watch = topics.Watch(self._bootstrap)
        try:
            before = sum(self._broker.cpu_times()[:2])
            with PeerRun(peer, installed, environment, state, log) as run:
                while run.look():
                    if time.time() - run.began > self._given.timeout:
                        return row | {"detail": f"not done after {self._given.timeout:.0f} s: {last_lines(log)}"}
                    time.sleep(LOOK_S)
            if run.failed():
                return row | {"detail": f"{run.failed()}: {last_lines(log)}"}
            broker_cpu = sum(self._broker.cpu_times()[:2]) - before
            found = watch.read(out)
            rows, wrong = answers.compared(query, answers.ANSWERS[query](self._frames), found.select("key", "value"))
            if wrong:
                return row | {"detail": wrong}
            return row | {"ok": True, "rows": rows} | compare.figures(run, n, found["at"], broker_cpu)
        except Exception as error:  # noqa: BLE001 - the trouble of one run is not the end of the others
            return row | {"detail": f"{type(error).__name__}: {error}: {last_lines(log)}"}
        finally:
            watch.close()
            topics.delete(self._bootstrap, application)
            shutil.rmtree(state, ignore_errors=True)


def table(results: list[dict[str, Any]]) -> pl.DataFrame:
    """A line for each query: rates, CPU seconds and memory of both, and the ratios."""
    found = {(row["query"], row["peer"]): row for row in results if row["ok"]}
    lines = []
    for query in queries.QUERIES:
        ours, theirs = found.get((query, "penstock"), {}), found.get((query, "kstreams"), {})
        line: dict[str, Any] = {"query": query}
        for figure, short in (
            ("steady_records_per_s", "rate"), ("cpu_s_per_million_after_start", "cpu"), ("cpu_s_per_million", "cpu_with_start"),
            ("peak_pss_mb", "mb"),
        ):  # fmt: skip
            one, other = ours.get(figure), theirs.get(figure)
            line |= {
                short: one,
                f"{short}_kstreams": other,
                f"{short}_ratio": round(one / other, 2) if one and other else None,
            }
        if ours or theirs:
            lines.append(line)
    return pl.DataFrame(lines, infer_schema_length=None)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000, help="events")
    parser.add_argument("--rate", type=int, default=10_000, help="events in a second of event time")
    parser.add_argument("--queries", nargs="+", choices=queries.QUERIES, default=list(queries.QUERIES))
    parser.add_argument("--peers", nargs="+", choices=("penstock", "kstreams"), default=["penstock", "kstreams"])
    parser.add_argument("--timeout", type=float, default=240, help="seconds for a run, start-up included")
    parser.add_argument("--conf", nargs="+", default=[], metavar="KEY=VALUE", help="further settings of Penstock")
    parser.add_argument("--merge", action="store_true", help="into the results that are there; what is run is replaced")
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    given.conf = dict(setting.split("=", 1) for setting in given.conf)
    return given


def main() -> None:
    given = arguments()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    report = machine.facts("bench/nexmark/run.py") | {
        "events": given.n,
        "rate": given.rate,
        "missing": {},
        "results": [],
    }
    if given.merge and given.json.exists():
        report["results"] = json.loads(given.json.read_text())["results"]
    peers = []
    for name in given.peers:
        try:
            peers.append((ALL[name], ALL[name].install()))
        except NotInstalledError as error:
            report["missing"][name] = str(error)
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-nexmark-"))).absolute()
        broker = stack.enter_context(compare.broker_in(root))
        runs = Runs(broker.settings.bootstrap_servers, psutil.Process(broker.status().pid), root, given)
        runs.load()
        for number, query in enumerate(given.queries):
            for peer, place in peers[:: -1 if number % 2 else 1]:
                if peer.name == "kstreams" and query in NOT_IN_JAVA:
                    continue
                row = runs.run(peer, place, query)
                shown = (
                    row.get("steady_records_per_s"),
                    row.get("cpu_s_per_million_after_start"),
                    row.get("peak_pss_mb"),
                )
                print(query, peer.name, *(shown if row["ok"] else ("WRONG", row["detail"][-1_500:])), flush=True)
                report["results"] = [r for r in report["results"] if (r["query"], r["peer"]) != (query, peer.name)] + [
                    row
                ]
            report["table"] = table(report["results"]).to_dicts()
            given.json.write_text(json.dumps(report, indent=1) + "\n")
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
        print(table(report["results"]))
    print(f"written: {given.json}")


if __name__ == "__main__":
    main()
