"""Interactive queries: how fast they answer, what they cost, and what the workers notice.

    python bench/queries.py [--keys N] [--changes N] [--seconds S] [--json FILE]

A process of its own plays the workers, with the production `TaskStore`: a batch every 100 ms changes some keys of two
tasks, and is committed as Spark does it. Queries run here, by turns over the workers' replicas and over one of their own;
then over HTTP. No Spark is needed, as queries need none.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import machine
from penstock.engines.committed_state.micro_batch_state import CommittedState, QueriedStores
from penstock.engines.committed_state.task_state import ReplicaFolders
from penstock.query import StoreQueryParameters
from penstock.query.stores import open_store
from penstock.serde import Serdes
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.topology.stores import StoreSpec

APPLICATION = "queries-bench"
SPEC = StoreSpec("counts", "timestamped", Serdes.string(), Serdes.long(), timestamped=True)
STORES = QueriedStores({"counts": SPEC})
TASKS = 2
INTERVAL_S = 0.1
WARM = 50


def commit(checkpoint: Path, batch: int) -> None:
    ends = {"events": {str(task): batch + 1 for task in range(TASKS)}}
    for folder, text in (("offsets", f"v1\n{{}}\n{json.dumps({'topics': ends, 'tick': 0})}"), ("commits", "v1\n{}")):
        path = checkpoint / "spark" / folder / str(batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{batch}")
        temporary.write_text(text)
        temporary.replace(path)


def key(task: int, number: int) -> bytes:
    return f"key-{number * TASKS + task:09}".encode()


def work(root: Path, keys: int, changes: int) -> None:
    """Plays the workers until its input ends; prints the seconds of each batch when asked with a line."""
    checkpoint = root / "checkpoint"
    sub = {"topics": ["events"], "internal_topics": [], "stores": ["counts"], "tasks": TASKS, "runs": 1}
    checkpoint.mkdir(parents=True)
    (checkpoint / "plan.json").write_text(
        json.dumps({"plan": {"application": APPLICATION, "subtopologies": {"0": sub}}})
    )
    stores = [
        TaskStore(StatePlace(str(checkpoint), root / "replicas"), StateOwner(APPLICATION), f"0_{task}", [SPEC])
        for task in range(TASKS)
    ]
    dice = random.Random(1)
    value = (0).to_bytes(16, "big")
    for task, store in enumerate(stores):
        numbers = range(keys // TASKS)
        store.begin(0).map("counts").put_many([key(task, n) for n in numbers], [value] * len(numbers))
        store.publish(0, {}, {"events": [0, 1]})
    commit(checkpoint, 0)
    print("ready", flush=True)
    times: list[float] = []
    paces = threading.Event()

    def batches() -> None:
        number = 1
        while not paces.is_set():
            started = time.perf_counter()
            for task, store in enumerate(stores):
                state = store.begin(number)
                picked = [key(task, dice.randrange(keys // TASKS)) for _ in range(changes // TASKS)]
                state.map("counts").put_many(picked, [number.to_bytes(16, "big")] * len(picked))
                store.publish(number, {}, {"events": [number, number + 1]})
                store.pause()
                store.resume()
            commit(checkpoint, number)
            times.append(time.perf_counter() - started)
            number += 1
            time.sleep(max(0.0, INTERVAL_S - (time.perf_counter() - started)))

    runner = threading.Thread(target=batches)
    runner.start()
    for _ in sys.stdin:
        found, times[:] = list(times), []
        print(json.dumps(found), flush=True)
    paces.set()
    runner.join()
    for store in stores:
        store.close()


class Workers:
    def __init__(self, root: Path, keys: int, changes: int) -> None:
        command = [sys.executable, __file__, "--work", str(root), "--keys", str(keys), "--changes", str(changes)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout.readline().strip() == "ready"

    def batch_ms(self) -> float:
        """The median time of the batches since the last call."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        times = json.loads(self._process.stdout.readline())
        return round(statistics.median(times) * 1000, 2) if times else 0.0

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(30)


def spread(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {
        f"{name}_us": round(ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1e6, 1)
        for name, part in at.items()
    }


def measured(ask, seconds: float, pause_s: float = 0.0) -> dict[str, float]:
    """Asks for some seconds; latencies, answers a second, and the processor's share."""
    times = []
    for _ in range(WARM):
        ask()
    before, started = cpu(), time.perf_counter()
    while time.perf_counter() - started < seconds:
        begin = time.perf_counter()
        ask()
        times.append(time.perf_counter() - begin)
        if pause_s:
            time.sleep(pause_s)
    spent = time.perf_counter() - started
    return {
        "per_s": round(len(times) / spent), **spread(times), "cpu_share": round((cpu() - before) / spent, 3),
    }  # fmt: skip


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def over_replicas(root: Path, workers: Workers, keys: int, seconds: float, source: str) -> dict[str, object]:
    replicas = root / "replicas" if source == "worker" else None
    state = CommittedState(
        str(root / "checkpoint"), APPLICATION, STORES, ReplicaFolders(root / f"own-{source}", replicas)
    )
    store = open_store(state, StoreQueryParameters("counts"))
    dice = random.Random(2)

    def some() -> str:
        return key(dice.randrange(TASKS), dice.randrange(keys // TASKS)).decode()

    started = time.perf_counter()
    assert store.get(some()) is not None
    found: dict[str, object] = {"first_ms": round((time.perf_counter() - started) * 1000, 1)}
    workers.batch_ms()
    found["get"] = measured(lambda: store.get(some()), seconds)
    found["batch_ms_while_asked_without_pause"] = workers.batch_ms()
    found["get_1000_a_second"] = measured(lambda: store.get(some()), seconds, pause_s=0.001)
    found["batch_ms_while_asked_1000_a_second"] = workers.batch_ms()
    found["range_of_100"] = measured(
        lambda: [entry for entry, _ in zip(store.range(some()), range(100), strict=False)], seconds
    )
    with state.reading("counts") as reading:
        found["read_from"] = sorted(set(reading.sources.values()))
    state.close()
    return found


def over_http(root: Path, keys: int, seconds: float) -> dict[str, object]:
    import httpx

    from penstock.query.http.server import QueryServer
    from penstock.query.http.service import QueryService

    state = CommittedState(
        str(root / "checkpoint"), APPLICATION, STORES, ReplicaFolders(root / "own", root / "replicas")
    )
    server = QueryServer(QueryService(state))
    server.start()
    dice = random.Random(3)
    counts: list[int] = []

    def path() -> str:
        return f"/stores/counts/keys/{key(dice.randrange(TASKS), dice.randrange(keys // TASKS)).decode()}"

    def client() -> None:
        with httpx.Client(base_url=server.url, trust_env=False) as http:
            asked, until = 0, time.perf_counter() + seconds
            while time.perf_counter() < until:
                assert http.get(path()).status_code == 200
                asked += 1
            counts.append(asked)

    try:
        with httpx.Client(base_url=server.url, trust_env=False) as http:
            one = measured(lambda: http.get(path()), seconds)
        threads = [threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        server.close()
        state.close()
    return {"one_client": one, "four_clients_per_s": round(sum(counts) / seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--changes", type=int, default=10_000, help="keys that change in a batch")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each figure")
    parser.add_argument("--json", type=Path, help="where to write the result")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work, given.keys, given.changes)
        return
    root = Path(tempfile.mkdtemp(prefix="penstock-queries-"))
    workers = Workers(root, given.keys, given.changes)
    try:
        time.sleep(1)
        workers.batch_ms()
        time.sleep(given.seconds)
        result = {
            "keys": given.keys,
            "changes_a_batch": given.changes,
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "batch_ms_not_asked": workers.batch_ms(),
            "worker_replica": over_replicas(root, workers, given.keys, given.seconds, "worker"),
            "own_replica": over_replicas(root, workers, given.keys, given.seconds, "own"),
            "http": over_http(root, given.keys, given.seconds),
        }
    finally:
        workers.close()
        shutil.rmtree(root, ignore_errors=True)
    machine.show(result, given.json)


if __name__ == "__main__":
    main()
