"""Runs of a suite of benchmarks over one broker: Nexmark, ShuffleBench, Theodolite.

A suite loads its topics once. Then the peers take turns at each of its workloads, and each answer is compared with one that
is computed by other means. A first run warms the broker up and does not count. Rates are records of the input a second: steady from the first record processed to the last, whole
from the start of the process. CPU seconds are those of all of a peer's processes, per million records, with and without its
start. A run with a wrong answer has no rate.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import polars as pl
import psutil
from confluent_kafka import Producer

import broker_topics as topics
import compare
import machine
from peer_run import LOOK_S, PeerRun, last_lines
from peer_setup import ALL, FLINK, STRUCTURED, NotInstalledError, Peer

LOADING = {
    "linger.ms": 50,
    "batch.size": 500_000,
    "queue.buffering.max.messages": 2_000_000,
    "partitioner": "murmur2_random",
    "enable.idempotence": True,  # a batch that is sent again comes in its place: answers may depend on the order
}
GUARANTEES = ("eos", "alo")
BOTH = ("penstock", "kstreams")
PEERS = ALL | {STRUCTURED.name: STRUCTURED, FLINK.name: FLINK}


class Suite(Protocol):
    """What the runs need to know of a suite."""

    name: str
    not_in: Mapping[str, Sequence[str]]  # by peer, the workloads that it cannot say
    made_anew: Mapping[str, Sequence[str]]  # topics beside the results that each run of a workload gets for itself

    def load(self, bootstrap: str) -> None:
        """Create the topics of the input and fill them."""

    def records(self, workload: str) -> int:
        """How many records of the input a workload reads."""

    def environment(self, workload: str) -> dict[str, str]:
        """What its programs find in the environment, beside what settings.py says."""

    def check(self, workload: str, written: Written) -> tuple[int, str]:
        """Return how many rows the answer has, and what is wrong with what was written; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a run has left in the log: ``read`` returns key, value and time of a topic's records, as bytes."""

    application: str
    out: pl.DataFrame
    read: Callable[[str], pl.DataFrame]

    @property
    def text(self) -> pl.DataFrame:
        return self.out.select(pl.col("key", "value").cast(pl.String))


def write(
    bootstrap: str, topic: str, rows: Iterable[tuple[bytes | None, bytes | None, int, int]], **config: str
) -> None:
    """Create a topic and write (key, value, partition, timestamp) to it; partition -1: by key."""
    topics.create(bootstrap, topic, topics.FOREVER | config)
    producer = Producer(topics.client(bootstrap) | LOADING)
    for number, (key, value, partition, timestamp) in enumerate(rows, 1):
        producer.produce(topic, value, key, partition, timestamp=timestamp)
        if number % 100_000 == 0:
            producer.flush(topics.PATIENCE_S)
    producer.flush(topics.PATIENCE_S)


class Runs:
    """The broker and the runs over what a suite has put there."""

    def __init__(
        self, suite: Suite, bootstrap: str, broker: psutil.Process, root: Path, given: argparse.Namespace
    ) -> None:
        self._suite, self._bootstrap, self._broker, self._root, self._given = suite, bootstrap, broker, root, given

    def run(self, peer: Peer, installed: Path, workload: str, guarantee: str) -> dict[str, Any]:
        """One run; what goes wrong is in the row."""
        suite, given = self._suite, self._given
        n = suite.records(workload)
        row: dict[str, Any] = {
            given.one: workload, "peer": peer.name, "guarantee": guarantee, given.counted: n, "ok": False,
        }  # fmt: skip
        application = f"{suite.name}-{peer.name}-{workload}-{time.time_ns() // 1_000_000}"
        out = f"{application}-out"
        topics.create(self._bootstrap, out, compare.APPEND_TIME)
        fresh = {name: f"{application}-{name}" for name in suite.made_anew.get(workload, ())}
        for topic in fresh.values():
            topics.create(self._bootstrap, topic, topics.FOREVER)
        conf = given.conf | ({"commit.interval.ms": given.commit_ms} if given.commit_ms else {})
        environment = {
            "BOOTSTRAP": self._bootstrap, "WORKLOAD": workload, "APP_ID": application, "TOPIC_OUT": out, "GUARANTEE": guarantee,
            "EXPECT_PROCESSED": str(n), "UNTIL_QUIET": "1", "PENSTOCK_CONF": json.dumps(conf),
            **({"COMMIT_MS": str(given.commit_ms)} if given.commit_ms else {}), **suite.environment(workload),
            **{f"TOPIC_{name.upper()}": topic for name, topic in fresh.items()},
        }  # fmt: skip
        state, log = self._root / application, self._root / f"{application}.log"
        watch = topics.Watch(self._bootstrap)
        try:
            before = sum(self._broker.cpu_times()[:2])
            with PeerRun(peer, installed, environment, state, log) as run:
                while run.look():
                    if time.time() - run.began > given.timeout:
                        return row | {"detail": f"not done after {given.timeout:.0f} s: {last_lines(log)}"}
                    time.sleep(LOOK_S)
            if run.failed():
                return row | {"detail": f"{run.failed()}: {last_lines(log)}"}
            broker_cpu = sum(self._broker.cpu_times()[:2]) - before
            written = Written(application, watch.read_bytes(out), watch.read_bytes)
            rows, wrong = suite.check(workload, written)
            if wrong:
                return row | {"detail": wrong}
            return row | {"ok": True, "rows": rows} | compare.figures(run, n, written.out["at"], broker_cpu)
        except Exception as error:  # noqa: BLE001 - the trouble of one run is not the end of the others
            return row | {"detail": f"{type(error).__name__}: {error}: {last_lines(log)}"}
        finally:
            watch.close()
            topics.delete(self._bootstrap, application)
            shutil.rmtree(state, ignore_errors=True)


def table(results: list[dict[str, Any]], one: str) -> pl.DataFrame:
    """A line for each workload and guarantee: rates, CPU seconds and memory of each peer, and the ratios."""
    good = {(row[one], row.get("guarantee", "eos"), row["peer"]): row for row in results if row["ok"]}
    others = [name for name in PEERS if name in {"kstreams", *(peer for *_, peer in good)} - {"penstock"}]
    lines = []
    for workload, guarantee in dict.fromkeys((workload, guarantee) for workload, guarantee, _ in good):
        ours = good.get((workload, guarantee, "penstock"), {})
        line: dict[str, Any] = {one: workload, "guarantee": guarantee}
        for figure, short in (
            ("steady_records_per_s", "rate"), ("whole_records_per_s", "rate_with_start"),
            ("cpu_s_per_million_after_start", "cpu"), ("cpu_s_per_million", "cpu_with_start"), ("peak_pss_mb", "mb"),
        ):  # fmt: skip
            line[short] = mine = ours.get(figure)
            for name in others:
                line[f"{short}_{name}"] = other = good.get((workload, guarantee, name), {}).get(figure)
                line[f"{short}_{name}_ratio"] = round(mine / other, 2) if mine and other else None
        lines.append(line)
    return pl.DataFrame(lines, infer_schema_length=None)


def parser(
    description: str, workloads: Sequence[str], *, n: int, one: str = "workload", peers: Sequence[str] = BOTH
) -> argparse.ArgumentParser:
    """The arguments that all suites take; ``one`` is what a suite calls a workload."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    many = {"query": "queries"}.get(one, f"{one}s")
    made.add_argument("--n", type=int, default=n, help="records of the input")
    made.add_argument(f"--{many}", nargs="+", choices=workloads, default=list(workloads), dest="workloads")
    made.add_argument("--peers", nargs="+", choices=peers, default=list(peers))
    made.add_argument("--guarantees", nargs="+", choices=GUARANTEES, default=["eos"])
    made.add_argument("--commit-ms", type=int, help="commit.interval.ms of all peers; else each peer's default")
    made.add_argument("--timeout", type=float, default=240, help="seconds for a run, start-up included")
    made.add_argument("--conf", nargs="+", default=[], metavar="KEY=VALUE", help="further settings of Penstock")
    made.add_argument("--merge", action="store_true", help="into the results that are there; what is run is replaced")
    made.add_argument(
        "--no-warm-up", dest="warm_up", action="store_false", help="count the first run of the broker too"
    )
    made.add_argument("--json", type=Path)
    made.set_defaults(one=one, counted="events" if one == "query" else "records")
    return made


def arguments(made: argparse.ArgumentParser) -> argparse.Namespace:
    given = made.parse_args()
    given.conf = dict(setting.split("=", 1) for setting in given.conf)
    return given


def main(suite: Suite, given: argparse.Namespace, **more: Any) -> list[dict[str, Any]]:
    """Run what the arguments name, show it, and keep it in bench/results; ``more`` goes into the report. Return its rows."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    results = given.json or Path(__file__).parent / "results" / f"{suite.name}.json"
    one, began = given.one, time.time()
    report = (
        machine.facts(f"bench/{suite.name}/run.py") | {given.counted: given.n} | more | {"missing": {}, "results": []}
    )
    if given.merge and results.exists():
        report["results"] = json.loads(results.read_text())["results"]
    peers = []
    for name in given.peers:
        try:
            peers.append((PEERS[name], PEERS[name].install()))
        except NotInstalledError as error:
            report["missing"][name] = str(error)
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"penstock-{suite.name}-"))).absolute()
        broker = stack.enter_context(compare.broker_in(root))
        runs = Runs(suite, broker.settings.bootstrap_servers, psutil.Process(broker.status().pid), root, given)
        suite.load(broker.settings.bootstrap_servers)
        if given.warm_up and peers:  # not counted: else the first peer would pay for the broker's compiler
            runs.run(*peers[:2][-1], given.workloads[0], given.guarantees[0])
        chosen = [(workload, guarantee) for workload in given.workloads for guarantee in given.guarantees]
        for number, (workload, guarantee) in enumerate(chosen):
            for peer, place in peers[:: -1 if number % 2 else 1]:
                if workload in suite.not_in.get(peer.name, ()):
                    continue
                if guarantee == "eos" and not peer.exactly_once:
                    continue
                row = runs.run(peer, place, workload, guarantee)
                shown = [row.get(n) for n in ("steady_records_per_s", "cpu_s_per_million_after_start", "peak_pss_mb")]
                print(
                    workload,
                    guarantee,
                    peer.name,
                    *(shown if row["ok"] else ("WRONG", row["detail"][-1_500:])),
                    flush=True,
                )
                same = (workload, guarantee, peer.name)
                others = [r for r in report["results"] if (r[one], r.get("guarantee", "eos"), r["peer"]) != same]
                report["results"] = [*others, row]
            report["table"] = table(report["results"], one).to_dicts()
            report["took_s"] = round(time.time() - began)
            results.write_text(json.dumps(report, indent=1) + "\n")
    with pl.Config(
        tbl_rows=-1, tbl_cols=-1, tbl_width_chars=250, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True
    ):
        print(table(report["results"], one))
    print(f"written: {results}, after {time.time() - began:.0f} s")
    rows: list[dict[str, Any]] = report["results"]
    return rows
