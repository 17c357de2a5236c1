"""Penstock: python penstock_peer.py; settings.py says what the environment holds. The topologies are workloads.py's.

PENSTOCK_CONF may hold further settings as JSON. For latency (TAIL=1) it goes on until it is told to stop.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from settings import ENV, EXACTLY_ONCE, OUT, TAIL, WORKLOAD, mark

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from penstock import KafkaStreams
from penstock.engines.spark.progress import BatchProgress
from penstock.topology.topology import Topology

QUIET_S, LOOK_S = 4.0, 0.1


def topology() -> Topology:
    if WORKLOAD.startswith("q"):
        from nexmark import queries

        names = {name: ENV[f"TOPIC_{name.upper()}"] for name in (*queries.TOPICS[WORKLOAD], "out")}
        return queries.topology(WORKLOAD, names, int(ENV["LONGEST_AUCTION_MS"]))
    if WORKLOAD == "shuffle":
        from shufflebench import shuffle

        return shuffle.topology(ENV["TOPIC_RECORDS"], OUT)
    if WORKLOAD.startswith("rtm-"):
        from rtm import tasks

        return tasks.topology(WORKLOAD.removeprefix("rtm-"), ENV["TOPIC_IN"], OUT)
    if WORKLOAD.startswith("uc"):
        from theodolite import cases

        names = {name: ENV[f"TOPIC_{name.upper()}"] for name in (*cases.TOPICS[WORKLOAD], "out")}
        return cases.topology(WORKLOAD, names)
    from workloads import TOPICS, WORKLOADS

    return WORKLOADS[WORKLOAD](**{name: ENV[f"TOPIC_{name.upper()}"] for name in (*TOPICS[WORKLOAD], "out")})


def main() -> None:
    app = KafkaStreams(
        topology(),
        {
            "application.id": ENV["APP_ID"],
            "bootstrap.servers": ENV["BOOTSTRAP"],
            "state.dir": ENV["STATE_DIR"],
            "spark.master": "local[2]",
            "auto.offset.reset": "earliest",
            "processing.guarantee": "exactly_once_v2" if EXACTLY_ONCE else "at_least_once",
            **json.loads(ENV.get("PENSTOCK_CONF", "{}")),
        },
    )
    records = 0
    changed = time.monotonic()

    def on(progress: BatchProgress) -> None:
        nonlocal records, changed
        if progress.records_in:
            changed = time.monotonic()
        if progress.records_in and not records:
            began = min(task["began_ms"] for task in progress.tasks if task.get("began_ms"))
            print("@@FIRST", began, flush=True)
            print("@@AT", began, 0, flush=True)
        records += progress.records_in
        mark("AT", records)
        steps = {}
        for task in progress.tasks:
            for step, seconds in task.get("seconds", {}).items():
                steps[step] = round(steps.get(step, 0.0) + seconds, 2)
        print(f"batch {progress.batch}: {progress.records_in} in, {progress.records_out} out, {steps}", file=sys.stderr)
        # The last one counts. Stream threads commit by themselves, and report afterwards.
        committed = max((task.get("committed_ms", 0) for task in progress.tasks), default=0)
        print("@@PROCESSED", committed or int(time.time() * 1000), flush=True)

    def end_when_quiet() -> None:
        while records < int(ENV["EXPECT_PROCESSED"]) or time.monotonic() - changed < QUIET_S:
            time.sleep(LOOK_S)
        app.close()

    app.add_progress_listener(on)
    app.set_state_listener(lambda new, _: mark(new.value))
    started = time.time()
    feeds_itself = "TOPIC_FEEDBACK" in ENV  # more than the records that are there at the start
    if feeds_itself:
        threading.Thread(target=end_when_quiet, daemon=True).start()
    app.run(until="stopped" if TAIL or feeds_itself else "latest")
    print(f"ran {time.time() - started:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
