"""Applications in micro-batches and in stream threads, without Spark, over one log: for tests of conversions.

Micro-batches run by the code of Spark's workers (`stages`), with the notes that Spark and the driver write.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "conformance"))
sys.path.insert(0, str(Path(__file__).parent / "property"))

from stages import Stages

from inputs import input_batches
from penstock.cli.topology_loader import load_topology
from penstock.config import StreamsConfig
from penstock.engines.application.application_mode import with_mode
from penstock.engines.application.application_note import note_application
from penstock.engines.application.identities import check_log_identity
from penstock.engines.application.internal_topic_creation import write_complete
from penstock.engines.application.locations import Locations
from penstock.engines.application.planning import PlannedApp, plan_for
from penstock.engines.application.stored_plans import read_stored_plan, write_stored_plan
from penstock.engines.micro_batches.takeovers import note_changelog_ends
from penstock.engines.offsets.offsets import SourceOffset
from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.hosting.epoch_start import NewEpoch, prepare_epoch
from penstock.engines.threads.hosting.plan_notes import read_notes
from penstock.engines.threads.loop.stream_thread import StreamThread, ThreadHooks
from penstock.log.base import Lease
from penstock.log.groups.offset_regressions import MARK
from penstock.log.open import open_log
from penstock.log.thread_clients import Writer
from penstock.serde import Serdes
from penstock.state.checkpoint import remove_checkpoint, write_document
from penstock.topology.configured import with_settings
from penstock.topology.plan.plan_json import StoredPlan
from threads import settle

__all__ = ["Application", "NotedBatches", "start_thread"]


class NotedBatches(Stages):
    """Micro-batches with the notes that Spark and the driver write."""

    def __init__(self, run: Any, root: Path, partitions: int, cache_bytes: int, more: dict[str, Any]) -> None:
        super().__init__(run, root, partitions, cache_bytes, more)
        checkpoint = self._app.checkpoint
        if read_stored_plan(checkpoint) is None:
            self._app.places.prepare()
            check_log_identity(checkpoint, self._log, "app", loss_fails=True)
            write_complete(checkpoint, [each.topic for each in self._app.changelogs])
            stored = StoredPlan.first(self._app.document, self._app.fingerprint)
            write_stored_plan(checkpoint, stored, self._app.topology, self.config)
            note_application(self._app, stored, self._lease)
        elif not self._app.changelogs:
            write_complete(checkpoint, [])  # as `prepare_changelogs` does

    @property
    def batch(self) -> int:
        return self._batch

    def run(self, records: Any, hurt: Any = None) -> None:
        super().run(records, hurt)
        plan, checkpoint = self._app.plan, self._app.checkpoint
        ends = self._log.end_offsets(list(plan.all_topics))
        end = SourceOffset(ends, ids=self._log.topic_ids(plan.all_topics))
        write_document(checkpoint, f"spark/offsets/{self._batch}", f"v1\n{{}}\n{json.dumps(end.to_json())}")
        write_document(checkpoint, f"spark/commits/{self._batch}", 'v1\n{"nextBatchWatermarkMs":0}')

    def close(self) -> None:
        self.lose_worker()
        note_changelog_ends(self._app.checkpoint, self._log, [each.topic for each in self._app.changelogs], self._batch)
        self._log.release_lease(self._lease)

    def _append(self, records: Any) -> dict[tuple[str, int], tuple[int, int]]:
        found = {}
        for topic, rows in input_batches(records, self._run.serdes).items():
            start = self._log.append(topic, 0, rows)
            found[topic, 0] = (start, start + rows.num_rows)
        return found


def start_thread(
    topology: Any, config: StreamsConfig, log: Any, hooks: ThreadHooks | None = None
) -> tuple[StreamThread, Lease]:
    """A started thread with all tasks, as the driver prepares it, and the lease under which it runs."""
    lease = log.acquire_lease("app", "test")
    notes = read_notes(log, "app")
    plan = plan_for(topology, config, log, None if notes is None else notes.stored)
    job = prepare_epoch(PlannedApp(topology, config, plan, log), NewEpoch(lease.epoch, 1, lease), None).job
    # Not the pickled topology: functions of tests note what they see.
    own = with_settings(topology, config)
    app = ThreadApp(own, config, plan, job.changelogs, job.numbers_topic, job.replica_root, job.identity)
    thread = StreamThread(app, log, Writer("app", "thread-0", lease.epoch), list(app.tasks()), hooks)
    thread.start()
    return thread, lease


MODULE = """
from penstock import Materialized, StreamsBuilder

builder = StreamsBuilder()
grouped = builder.stream("words").group_by(lambda _, word: word)
grouped.count(Materialized("{store}")).to_stream().to("counts")
topology = builder.build()
config = {config!r}
"""


class Application:
    """A word count through a repartition topic, over an embedded log, named by a module."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.settings = {
            "application.id": "app",
            "bootstrap.servers": f"sqlite:///{root / 'log.db'}?synchronous=off",
            "state.dir": str(root),
            "penstock.checkpoint.location": str(root / "checkpoint"),
            "default.key.serde": "string",
            "default.value.serde": "string",
            "statestore.cache.max.bytes": 0,
        }
        self.target = f"{root / 'counting.py'}:topology"
        self.write_module()
        self.log: Any = open_log(str(self.settings["bootstrap.servers"]))
        text = Serdes.string()
        self._serdes = {"words": (text, text), "counts": (text, Serdes.long())}
        for topic in self._serdes:
            self.log.create_topic(topic, 1, {"retention.ms": "-1"})
        self._written = 0

    def write_module(self, store: str = "word-counts") -> None:
        """Write the module of the topology."""
        (self.root / "counting.py").write_text(MODULE.format(store=store, config=self.settings))

    def in_batches(self, records: int) -> None:
        """Process so many more records in micro-batches."""
        run = SimpleNamespace(topology=self._topology(), serdes=self._serdes, config=self.settings, stores=[])
        batches = NotedBatches(run, self.root, 1, 0, self.settings)
        rows = self._records(records)
        for start in range(0, records, 10):
            batches.run(rows[start : start + 10])
        batches.close()
        self.log.commit_offsets("app", self.log.end_offsets(["words"]), f"{MARK} batch {batches.batch}")

    def in_thread(self, records: int) -> None:
        """Process so many more records in a stream thread."""
        thread, lease = self.start_thread()
        self.append(records)
        settle(thread)
        thread.close(commit=True)
        self.log.release_lease(lease)

    def start_thread(self) -> tuple[StreamThread, Lease]:
        """Start a thread with all tasks."""
        return start_thread(self._topology(), with_mode(StreamsConfig(self.settings), "continuous"), self.log)

    def append(self, records: int) -> None:
        """Append so many more records."""
        for topic, rows in input_batches(self._records(records), self._serdes).items():
            self.log.append(topic, 0, rows)

    def counts(self) -> list[tuple[str, int]]:
        """All results, in order."""
        rows = self.log.read("counts", 0, 0, 100_000).records
        keys, values = (rows.column(name).to_pylist() for name in ("key", "value"))
        return sorted((key.decode(), int.from_bytes(value, "big")) for key, value in zip(keys, values, strict=True))

    def wanted(self) -> list[tuple[str, int]]:
        """What they must be: each count of each word, once."""
        found = Counter(f"w{number % 7}" for number in range(self._written))
        return sorted((word, count) for word, most in found.items() for count in range(1, most + 1))

    def lose_checkpoint(self) -> None:
        """Delete the checkpoint."""
        remove_checkpoint(Locations.of(StreamsConfig(self.settings)).checkpoint)

    def everything(self) -> dict[str, Any]:
        """Files of the checkpoint, the group's offsets, and the ends of all topics."""
        files = {str(path): path.read_bytes() for path in (self.root / "checkpoint").rglob("*") if path.is_file()}
        topics = [topic.name for topic in self.log.topics()]
        return {**files, "group": self.log.group_offsets("app"), "ends": self.log.end_offsets(topics)}

    def _topology(self) -> Any:
        return load_topology(self.target)[0]

    def _records(self, count: int) -> list[dict[str, Any]]:
        first, self._written = self._written, self._written + count
        return [
            {"topic": "words", "key": None, "value": f"w{number % 7}", "timestamp": 1_000 + number}
            for number in range(first, first + count)
        ]
