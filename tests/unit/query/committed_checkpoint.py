"""An application's checkpoint without Spark: the worker's own TaskStore, and a commit log as Spark writes it."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.engines.committed_state.micro_batch_state import CommittedState, QueriedStores
from penstock.engines.committed_state.task_state import ReplicaFolders
from penstock.serde import Serdes
from penstock.serde.windowed import Window, Windowed
from penstock.state.checkpoint import write_document
from penstock.state.snapshots import SnapshotPolicy
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.state.views import open_view
from penstock.topology.stores import StoreSpec

APP = "app"
T = 1_790_000_000_000
STRING, LONG = Serdes.string(), Serdes.long()
SPECS = {
    "counts": StoreSpec("counts", "timestamped", STRING, LONG, timestamped=True),
    "plain": StoreSpec("plain", "key_value", STRING, STRING),
    "windows": StoreSpec(
        "windows", "window", STRING, LONG, timestamped=True, window_size_ms=1000, retention_ms=3_600_000
    ),
    "sessions": StoreSpec("sessions", "session", STRING, LONG, retention_ms=3_600_000),
    "versions": StoreSpec("versions", "versioned", STRING, STRING, history_ms=3_600_000),
    "recent": StoreSpec("recent", "lru", STRING, STRING, max_entries=2),
}


class Checkpoint:
    """One sub-topology with all stores; batches are run and committed by hand."""

    def __init__(self, root: Path, tasks: int = 2, runs: int = 1, location: str = "") -> None:
        self.root = root
        self.location = location or str(root / "checkpoint")
        self.tasks, self.runs = tasks, runs
        self.committed = -1
        self.workers: dict[int, TaskStore] = {}
        self.snapshot_every = 100
        sub = {
            "topics": ["events"], "internal_topics": [], "stores": sorted(SPECS), "tasks": tasks, "runs": runs,
        }  # fmt: skip
        self.write("plan.json", json.dumps({"plan": {"application": APP, "subtopologies": {"0": sub}}}))

    def fill(self) -> None:
        """One batch with six keys in every kind of store, from a fixed time on."""

        def change(task, store):
            for n in range(task, 6, 2):
                store("counts").put(f"k{n}", n, T + n)
                store("plain").put(f"k{n}", f"v{n}")
                store("windows").put(f"k{n}", n, T, T)
                store("windows").put(f"k{n}", n + 10, T + 1000, T + 1000)
                store("sessions").put(Windowed(f"k{n}", Window(T, T + 50)), n)
                store("versions").put(f"k{n}", "old", T)
                store("versions").put(f"k{n}", "new", T + 100)

        self.batch(change)

    def write(self, name: str, text: str) -> None:
        write_document(self.location, name, text)

    def worker(self, task: int) -> TaskStore:
        if task not in self.workers:
            self.workers[task] = TaskStore(StatePlace(self.location, self.root / "workers", durable=False), StateOwner(APP), f"0_{task}", SPECS.values(), policy=SnapshotPolicy(every=self.snapshot_every, share=0))  # fmt: skip
        return self.workers[task]

    def run(self, task: int, batch: int, change) -> None:
        """A batch of one task up to its published segment; ``change`` is given a function from name to view."""
        store = self.worker(task)
        state = store.begin(batch)
        change(lambda name: open_view(SPECS[name], state.map(name), state.meta))
        store.publish(batch, {}, {"events-0": [batch, batch + 1]})

    def commit(self, batch: int) -> None:
        ends = {str(task): (batch + 1) * 10 for task in range(self.tasks)}
        source = json.dumps({"topics": {"events": ends}, "tick": 0})
        self.write(f"spark/offsets/{batch}", f"v1\n{{}}\n{source}")
        self.write(f"spark/commits/{batch}", "v1\n{}")
        self.committed = batch

    def batch(self, change) -> None:
        """A whole batch: ``change(task, store)`` for each task, then the commit."""
        number = self.committed + 1
        for task in range(self.tasks):
            self.run(task, number, lambda store, task=task: change(task, store))
        self.commit(number)

    def state(self, **options) -> CommittedState:
        replicas = ReplicaFolders(options.pop("own_root", self.root / "own"), options.pop("worker_root", None))
        return CommittedState(self.location, APP, QueriedStores(SPECS), replicas, **options)

    def close(self) -> None:
        for store in self.workers.values():
            store.close()
