"""One stream thread under backlog, without Spark: its rate, and where its CPU time goes, by step of the loop.

python bench/thread_rate.py [--n 500000] [--workloads w1 w3] [--exactly-once] [--conf max.poll.records=20000] [--keep DIR]
python bench/thread_rate.py --profile --workloads w3      # the functions that take most

The thread has all tasks of the application, four partitions, and runs alone with a broker on the same machine. ``us`` are
microseconds of its process's CPU time for each record of the input topic, all of its threads counted (Polars and Arrow
have some); ``wait`` is wall-clock time in which it did not compute.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import json
import pstats
import tempfile
import time
import types
from pathlib import Path
from typing import Any

import broker_topics as topics
import machine
import penstock.engines.threads.loop.stream_thread as thread_module
from compare import broker_in, topology_of
from penstock.config import StreamsConfig
from penstock.engines.application.locations import log_settings
from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.loop.stream_thread import StreamThread
from penstock.log.open import open_log
from penstock.log.thread_clients import Writer
from penstock.topology.configured import with_settings
from penstock.topology.plan.internal_topics import changelogs_of
from penstock.topology.plan.plan import plan_of
from penstock.topology.topology import Topology
from workloads import TOPICS, WORKLOADS

FOREVER = {"retention.ms": "-1"}


def planned(workload: str, log: Any, given: argparse.Namespace, root: str) -> ThreadApp:
    """The application with its topics, as `penstock.engines.threads.hosting.epoch_start` prepares it."""
    name = f"rate-{workload}-{time.time_ns() // 1_000_000}"
    topics.create(log.url.removeprefix("kafka://"), f"{name}-out", {})
    names = {topic: topics.input_topic(topic, given.n) for topic in TOPICS[workload]} | {"out": f"{name}-out"}
    guarantee = "exactly_once_v2" if given.exactly_once else "at_least_once"
    settings = {"application.id": name, "bootstrap.servers": log.url, "processing.guarantee": guarantee}
    config = StreamsConfig(settings | given.conf)
    return planned_app(WORKLOADS[workload](**names), config, log, root)


def planned_app(topology: Topology, config: StreamsConfig, log: Any, root: str) -> ThreadApp:
    """The application of a topology, with its internal topics."""
    name = config["application.id"]
    topology = with_settings(topology, config)
    plan = plan_of(topology, name, {topic.name: topic.partitions for topic in log.topics()})
    changelogs = changelogs_of(topology, plan, config)
    wanted = {each.topic: (each.partitions, each.config) for each in changelogs}
    wanted |= {f"{name}-{topic}": (plan.partitions[topic], FOREVER) for topic in plan.internal_topics}
    for topic, (partitions, conf) in wanted.items():
        log.create_topic(topic, partitions, conf)
    by_store = {each.store: each.topic for each in changelogs if each.store}
    numbers = next((each.topic for each in changelogs if not each.store), None)
    return ThreadApp(topology, config, plan, by_store, numbers, root, log.identity())


def cpu_steps() -> None:
    """Time a thread's steps by CPU time: what waits is not work."""
    thread_module.time = types.SimpleNamespace(
        perf_counter=time.process_time, monotonic=time.monotonic, time_ns=time.time_ns
    )


def measure(workload: str, bootstrap: str, given: argparse.Namespace) -> dict[str, Any]:
    url = f"kafka://{bootstrap}"
    clients = log_settings(StreamsConfig({"application.id": "rate", "bootstrap.servers": url} | given.conf))
    with open_log(url, clients) as log, tempfile.TemporaryDirectory(prefix="penstock-bench-") as root:
        app = planned(topology_of(workload), log, given, root)
        lease = log.acquire_lease(app.application_id, "bench")
        thread = StreamThread(
            app, log, Writer(app.application_id, "thread-0", lease.epoch, given.exactly_once), list(app.tasks())
        )
        thread.start()
        ends = log.end_offsets(app.plan.external_topics)
        profile = cProfile.Profile() if given.profile else contextlib.nullcontext()
        began, before, steps = time.perf_counter(), time.process_time(), 0
        with profile:
            quiet = 0
            while quiet < 3:  # steps without anything to do
                quiet = 0 if thread.step(0.2) else quiet + 1
                steps += 1
                at = thread.positions
                if all(at[place] >= end for place, end in ends.items()) and not app.repartition_topics:
                    break
            thread.commit()
        seconds, cpu = time.perf_counter() - began, time.process_time() - before
        if given.profile:
            pstats.Stats(profile).sort_stats(given.sort).print_stats(45)
        found = thread.figures()
        thread.close(commit=True)
        topics.delete(bootstrap, app.application_id)
    return {
        "workload": workload, "exactly_once": given.exactly_once, "records": given.n, "steps": steps,
        "commits": found.commits, "records_out": sum(task.records_out for task in found.tasks),
        "records_per_s": round(given.n / seconds), "wait_s": round(seconds - cpu, 2),
        "us": {step: round(1e6 * time_s / given.n, 2) for step, time_s in found.seconds.items()}
        | {"all": round(1e6 * cpu / given.n, 2)},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=500_000)
    parser.add_argument("--workloads", nargs="+", default=["w1", "w2a", "w2b", "w3", "w4"])
    parser.add_argument("--exactly-once", action="store_true")
    parser.add_argument("--conf", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--runs", type=int, default=2, help="the first one warms up")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--sort", default="tottime")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    given.conf = dict(each.split("=", 1) for each in given.conf)
    cpu_steps()
    report = machine.facts("bench/thread_rate.py") | {"results": []}
    with contextlib.ExitStack() as stack:
        root = (given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-")))).absolute()
        broker = stack.enter_context(broker_in(root))
        for workload in given.workloads:
            for topic in TOPICS[topology_of(workload)]:
                topics.preload(broker.settings.bootstrap_servers, root, topic, given.n)
            for _ in range(given.runs):
                row = measure(workload, broker.settings.bootstrap_servers, given)
                print(row, flush=True)
            report["results"].append(row)
    if given.json:
        given.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
