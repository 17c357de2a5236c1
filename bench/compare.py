"""Penstock beside Kafka Streams (Java), Quix Streams, Bytewax and Faust: the same topics of one broker, in one run.

python bench/compare.py [--quick] [--n 1000000] [--workloads w1 w5] [--peers penstock kstreams] [--latency] [--name NAME]
python bench/compare.py --workloads w5 --peers faust --merge --name kafka   # one run again; the others' stay as they are

Every peer runs in processes of its own with two threads or processes. Its answer is read back and compared with one that
Polars computes; a run with a wrong answer is not a result. A first run warms the broker up and does not count. Rates are
records of the input topic a second:

  steady   all records, from the first record processed until the last is (peers that do not tell: until their last output)
  warm     the same behind the first third of the records, where the peer tells how far it is
  outputs  all records, from the first record processed until the last output is in its topic
  whole    all records, from the start of the process until the last output: start-up included

The slow peers get a part of the records (peer_setup.py), and a run that is not over after --timeout seconds is ended: it
is not a result, and the row says how far it came, and how fast. Workloads are those of docs/benchmarks.md; w5 is w2b exactly once,
all others run at least once, and Penstock also exactly once, to show what that costs; Penstock in both modes. The results
and the ratios Penstock / peer, in micro-batches and in continuous mode, go to bench/results/compare-NAME.json.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psutil

import answers
import broker_topics as topics
import compare_report
import machine
import peer_latency
from peer_run import LOOK_S, PeerRun, last_lines
from peer_setup import ALL, NotInstalledError, Peer
from penstock.errors import PenstockError
from penstock.tools.broker.broker_settings import BrokerSettings, free_port
from penstock.tools.broker.process import Broker, BrokerCluster
from workloads import TOPICS

HERE = Path(__file__).parent
WORKLOADS = ("w1", "w2a", "w2b", "w3", "w4", "w5")
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
QUIET_S = 5.0
WARM_UP_S = 60  # of the broker, before latencies
HEAP_MB = 1024
MODES = ("continuous", "micro_batch")
LATENCY_MODES = {
    "penstock": (("continuous", True), ("continuous", False), ("micro_batch", True), ("micro_batch", False)),
    "kstreams": (("", False), ("", True)),
}
GUARANTEES = ("at_least_once", "exactly_once_v2")
KEPT = ("records", "results", "latency")  # of results that are merged; what the machine was is of the last run


class Comparison:
    """The brokers, the folder of the answers, and the runs over them."""

    def __init__(self, brokers: list[Broker], root: Path, given: argparse.Namespace) -> None:
        self.bootstrap = ",".join(broker.settings.bootstrap_servers for broker in brokers)
        self.root = root
        self.given = given
        self._brokers = [psutil.Process(broker.status().pid) for broker in brokers]

    def records_for(self, peer: Peer) -> int:
        return max(round(self.given.n * peer.share), 1)

    def preload(self, workload: str, n: int) -> None:
        for topic in TOPICS[topology_of(workload)]:
            topics.preload(self.bootstrap, self.root, topic, n)

    def _cpu(self) -> float:
        """CPU seconds of the brokers since their start."""
        return sum(sum(broker.cpu_times()[:2]) for broker in self._brokers)

    def run(self, peer: Peer, installed: Path, workload: str, *, exactly_once: bool, mode: str) -> dict[str, Any]:
        """One run, of Penstock in one of its modes; what goes wrong is in the row."""
        n, topology = self.records_for(peer), topology_of(workload)
        row: dict[str, Any] = {
            "workload": workload, "peer": peer.name, "mode": mode, "exactly_once": exactly_once, "records": n,
            "processes": peer.processes, "ok": False,
        }  # fmt: skip
        conf = self.given.conf | ({"processing.mode": mode} if mode else {})
        application = f"bench-{peer.name}-{workload}-{time.time_ns() // 1_000_000}"
        out = f"{application}-out"
        topics.create(self.bootstrap, out, APPEND_TIME)
        state, log = self.root / application, self.root / f"{application}.log"
        environment = {
            "BOOTSTRAP": self.bootstrap, "WORKLOAD": topology, "APP_ID": application, "TOPIC_OUT": out,
            "GUARANTEE": "eos" if exactly_once else "alo", "PENSTOCK_CONF": json.dumps(conf),
            **{f"TOPIC_{topic.upper()}": topics.input_topic(topic, n) for topic in TOPICS[topology]},
        }  # fmt: skip
        processed = n * (2 if topology in ("w2a", "w2b", "w4") else 1)
        environment["EXPECT_PROCESSED"] = str(processed + (topics.N_KEYS if topology == "w4" else 0))
        watch = topics.Watch(self.bootstrap)
        try:
            before = self._cpu()
            with PeerRun(peer, installed, environment, state, log) as run:
                why = self._until_done(run, peer, watch, out, None if exactly_once else self._outputs(topology, n))
            broker_cpu = self._cpu() - before
            if why:
                return row | {"detail": f"{why}: {last_lines(log)}"} | self._reached(run, peer, watch, out, processed)
            found = watch.read(out)
            ok, detail = topics.check(topology, self.root, n, found)
            for topic in TOPICS[topology]:
                if watch.held(topics.input_topic(topic, n)) != topics.size_of(topic, n):
                    ok, detail = False, f"the broker has dropped records of {topic}; {detail}"
            return row | {"ok": ok, "detail": detail, **figures(run, n, found["at"], broker_cpu)}
        except Exception as error:  # noqa: BLE001 - one peer's trouble is not the end of the others' runs
            return row | {"detail": f"{type(error).__name__}: {error}: {last_lines(log)}"}
        finally:
            watch.close()
            topics.delete(self.bootstrap, application)
            shutil.rmtree(state, ignore_errors=True)

    def _reached(self, run: PeerRun, peer: Peer, watch: topics.Watch, out: str, processed: int) -> dict[str, Any]:
        """How far a run came that was ended, as the peer told or else by its outputs; in records of the input topic."""
        begun = run.marks.get("FIRST")
        if begun is None:
            return {}
        at, count = run.counts[-1] if run.counts else (time.time(), watch.held(out))
        records = round(count * self.records_for(peer) / processed) if run.counts else count
        return {"reached": {"records": records, "records_per_s": round(records / max(at - begun, 1e-3))}}

    def _outputs(self, topology: str, n: int) -> int:
        """How many records a peer without a cache writes."""
        return answers.ANSWERS["w1"](self.root / str(n)).height if topology == "w1" else n

    def _until_done(self, run: PeerRun, peer: Peer, watch: topics.Watch, out: str, wanted: int | None) -> str:
        """Waits for the end of a run; the reason when it did not end well.

        A peer that does not end by itself is done when its output topic holds ``wanted`` records or, if that cannot be
        counted, has not grown for a while.
        """
        size, grown = 0, time.time()
        while time.time() - run.began < self.given.timeout:
            if not run.look():
                return run.failed() if peer.ends else "it ended by itself"
            if not peer.ends:
                size, before = watch.held(out), size
                grown = time.time() if size != before else grown
                if size == wanted or (size and time.time() - grown > QUIET_S):
                    return ""
            time.sleep(LOOK_S)
        return f"not done after {self.given.timeout:.0f} s"


def topology_of(workload: str) -> str:
    return "w2b" if workload == "w5" else workload


def figures(run: PeerRun, n: int, written_at: pl.Series, broker_cpu: float) -> dict[str, Any]:
    """Rates, CPU time and memory of a run that is over."""
    last = (written_at.max() or 0) / 1000
    first = run.marks.get("FIRST", (written_at.min() or 0) / 1000)
    processed = run.marks.get("PROCESSED", last)
    end = max(processed, last)
    millions = n / 1e6
    return {
        "outputs": len(written_at),
        "steady_records_per_s": round(n / max(processed - first, 1e-3)),
        "warm_records_per_s": run.warm_rate(n),
        "outputs_records_per_s": round(n / max(last - first, 1e-3)),
        "whole_records_per_s": round(n / max(end - run.began, 1e-3)),
        "first_record_after_s": round(first - run.began, 2),
        "measured_s": round(processed - first, 2),
        "cpu_s_per_million": round(run.cpu_at(end) / millions, 2),
        "cpu_s_per_million_after_start": round((run.cpu_at(end) - run.cpu_at(first)) / millions, 2),
        "broker_cpu_s_per_million": round(broker_cpu / millions, 2),
        "peak_rss_mb": round(run.peak_rss / 2**20),
        "peak_pss_mb": round(run.peak_pss / 2**20),
    }


def typical(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of several runs the one with the median rate; a failed one if all have failed."""
    good = [row for row in rows if row["ok"]]
    if not good:
        return rows[0]
    middle = statistics.median_low(row["steady_records_per_s"] for row in good)
    chosen = next(row for row in good if row["steady_records_per_s"] == middle)
    return chosen | {"runs": [row.get("steady_records_per_s") for row in rows]}


def installed(names: list[str]) -> Iterator[tuple[Peer, Path | None, str]]:
    """Each peer with its interpreter, or with the reason why there is none."""
    for name in names:
        peer = ALL[name]
        try:
            yield peer, peer.install(), ""
        except (NotInstalledError, PenstockError, OSError) as error:
            yield peer, None, str(error)


def warm_up(comparison: Comparison, peer: Peer, place: Path) -> None:
    """A run that does not count: else the first peers would pay for the broker's compiler, seconds of CPU."""
    given, workload = comparison.given, comparison.given.workloads[0]
    comparison.preload(workload, comparison.records_for(peer))
    mode = given.modes[0] if peer.name == "penstock" else ""
    comparison.run(peer, place, workload, exactly_once=peer.exactly_once, mode=mode)


def compare(comparison: Comparison, peers: list[tuple[Peer, Path]], save: Any, report: dict[str, Any]) -> None:
    """All runs; the report is saved after each."""
    given = comparison.given
    if peers and not given.quick:
        warm_up(comparison, *peers[-1])
    for workload in given.workloads:
        for n in sorted({comparison.records_for(peer) for peer, _ in peers}):
            comparison.preload(workload, n)
        for peer, place in peers:
            is_own = peer.name == "penstock"
            guarantees = [workload == "w5"]
            if is_own and workload not in ("w2b", "w5") and not given.quick:
                guarantees.append(True)
            for exactly_once in guarantees:
                if exactly_once and not peer.exactly_once:
                    continue
                modes = given.modes if is_own else [""]
                rows: dict[str, list[dict[str, Any]]] = {mode: [] for mode in modes}
                for _ in range(given.runs):  # the modes take turns
                    for mode in modes:
                        rows[mode].append(comparison.run(peer, place, workload, exactly_once=exactly_once, mode=mode))
                for each in rows.values():
                    row = typical(each)
                    put(report["results"], row)
                    print(compare_report.line(row), flush=True)
                    save()


def put(rows: list[dict[str, Any]], row: dict[str, Any]) -> None:
    """Adds a row, in the place of one of an earlier run that is merged with this one."""

    def identity(of: dict[str, Any]) -> tuple[Any, ...]:
        which = of.get("workload"), of.get("commit_interval_ms")
        return (*which, of["peer"], compare_report.mode_of(of), of["exactly_once"])

    places = [number for number, each in enumerate(rows) if identity(each) == identity(row)]
    if places:
        rows[places[0]] = row
    else:
        rows.append(row)


def latencies(comparison: Comparison, peers: list[tuple[Peer, Path]], save: Any, report: dict[str, Any]) -> None:
    """Each peer with the guarantees that it has; Penstock in both modes."""
    given = comparison.given
    able = [(peer, place) for peer, place in peers if peer.name != "faust"]
    if able:  # not counted: a broker answers three times faster when its code is compiled, after a minute
        warm_up = {"exactly_once": True, "rate": given.rate, "seconds": WARM_UP_S, "commit_ms": 10}
        peer_latency.measure(comparison.bootstrap, comparison.root, *able[-1], given.latency_workload, **warm_up)
    for commit_ms, exactly_once in itertools.product(given.commit_interval_ms, (True, False)):
        if GUARANTEES[exactly_once] not in given.guarantees:
            continue
        cases = [
            (peer, place, mode)
            for peer, place in able
            for mode, guaranteed in LATENCY_MODES.get(peer.name, (("", False),))
            if guaranteed == exactly_once and (not mode or mode in given.modes)
        ]
        rows: dict[tuple[str, str], list[dict[str, Any]]] = {(peer.name, mode): [] for peer, _, mode in cases}
        for number in range(given.runs):
            for peer, place, mode in cases[:: -1 if number % 2 else 1]:  # they take turns, once this way, once that way
                conf = given.conf | ({"processing.mode": mode} if mode else {})
                row = peer_latency.measure(
                    comparison.bootstrap, comparison.root, peer, place, given.latency_workload,
                    exactly_once=exactly_once, rate=given.rate, seconds=given.seconds, conf=conf, commit_ms=commit_ms,
                ) | {"mode": mode}  # fmt: skip
                rows[peer.name, mode].append(row)
                print(compare_report.latency_line(row), flush=True)
        for each in rows.values():
            put(report["latency"], peer_latency.typical(each))
        save()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000, help="records of each input topic")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--peers", nargs="+", choices=list(ALL), default=list(ALL))
    parser.add_argument("--runs", type=int, default=1, help="runs of each; the median counts, of latencies, too")
    parser.add_argument("--quick", action="store_true", help="200,000 records and no second guarantee: does it work?")
    parser.add_argument("--latency", action="store_true", help="also latency at --rate records a second")
    parser.add_argument("--only-latency", action="store_true")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), help="of Penstock")
    parser.add_argument("--latency-workload", choices=peer_latency.FEEDS, default="w3")
    parser.add_argument("--guarantees", nargs="+", choices=GUARANTEES, default=list(GUARANTEES), help="for latency")
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument(
        "--commit-interval-ms", type=int, nargs="+", default=[None], help="for latency, of Penstock and Kafka Streams"
    )
    parser.add_argument("--brokers", type=int, default=1, help="of the cluster; with three, topics have three replicas")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a run, start-up included")
    parser.add_argument("--merge", action="store_true", help="into the results of that name; what is run is replaced")
    parser.add_argument("--conf", nargs="+", default=[], metavar="KEY=VALUE", help="further settings of Penstock")
    parser.add_argument("--keep", type=Path, help="folder of broker and records, taken up again by the next run")
    parser.add_argument("--name", default=time.strftime("%Y-%m-%d", time.gmtime()))
    given = parser.parse_args()
    given.conf = dict(setting.split("=", 1) for setting in given.conf)
    given.n = 200_000 if given.quick else given.n
    return given


@contextlib.contextmanager
def brokers_in(root: Path, count: int) -> Iterator[list[Broker]]:
    if count == 1:
        with broker_in(root) as broker:
            yield [broker]
    else:
        with BrokerCluster(root / "brokers", count, partitions=topics.PARTITIONS, heap_mb=HEAP_MB // 2) as cluster:
            topics.warm_up(cluster.bootstrap_servers)
            yield cluster.brokers


@contextlib.contextmanager
def broker_in(root: Path) -> Iterator[Broker]:
    settings = BrokerSettings(
        root / "broker", free_port(), free_port(), partitions=topics.PARTITIONS, heap_mb=HEAP_MB
    )  # fmt: skip
    with Broker(settings) as broker:
        topics.warm_up(settings.bootstrap_servers)
        yield broker


def main() -> None:
    given = arguments()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # the broker and the peers end with it
    output = HERE / "results" / f"compare-{given.name}.json"
    report = machine.facts("bench/compare.py") | {"records": given.n, "results": [], "latency": [], "missing": {}}
    if given.merge and output.exists():
        report |= {name: found for name, found in json.loads(output.read_text()).items() if name in KEPT}
        given.n = report["records"]

    def save() -> None:
        report["ratios"] = compare_report.ratios(report["results"], "kstreams", "steady_records_per_s")
        report["continuous_ratios"] = compare_report.continuous_ratios(report["results"])
        report["more_ratios"] = compare_report.more_ratios(report["results"])
        report["exactly_once_cost"] = compare_report.exactly_once_cost(report["results"])
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(report, indent=1) + "\n")

    ready = []
    for peer, place, why in installed(given.peers):
        if place is None:
            report["missing"][peer.name] = why
            print(f"{peer.title} cannot be installed here: {why}", flush=True)
        else:
            ready.append((peer, place))
    with contextlib.ExitStack() as stack:
        root = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-compare-")))
        brokers = stack.enter_context(brokers_in(root.absolute(), given.brokers))
        comparison = Comparison(brokers, root.absolute(), given)
        if not given.only_latency:
            compare(comparison, ready, save, report)
        if given.latency or given.only_latency:
            latencies(comparison, ready, save, report)
    save()
    compare_report.show(report)
    print(f"written: {output}")


if __name__ == "__main__":
    main()
