"""Runs a recorded case through Spark over the embedded log, in real micro-batches or in stream threads.

The inputs are appended in chunks in which Kafka's own rule (the partition with the smallest head goes first) keeps the
order of the case; each chunk is processed before the next is appended. Inside one sub-topology the outputs must then be
those of the Java driver, record for record. Between sub-topologies, and with caching, the promise is a weaker one: the
last record per key and the final contents of the stores. What ``peek`` and ``foreach`` see stays in the workers.

Threads read each topic for itself, so they get the records of several topics one by one: each is processed before the
next is appended.

Where micro-batches do not promise even that (`freedom`), a difference is none if the case agrees when each record is a batch of its own.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parents[1]))

from batches import cut_in_order
from compare import LeftOut, by_topic, comparable, first_difference, is_of_the_driver, newest, sorted_store, timeless
from convertible import start_thread
from eventually import eventually
from freedom import free_names
from inputs import header_rows, input_batches
from interpreter import Interpreted, NotBuilt, interpret
from penstock import KafkaStreams
from penstock.config import StreamsConfig
from penstock.engines.application.locations import Locations
from penstock.engines.application.planning import plan_for
from penstock.engines.global_store_copy import GlobalStores
from penstock.engines.threads.hosting.epoch_positions import has_reached
from penstock.errors import PenstockError
from penstock.log.base import TopicPartition
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.state.views import open_view
from penstock.topology.plan.partitions import source_topics
from penstock.topology.plan.plan import TaskId
from things import plain
from threads import Drops

__all__ = ["has_one_input", "is_comparable", "results", "run_case"]

Case = dict[str, Any]
Row = dict[str, Any]
Result = TypeVar("Result")
LONGEST = 40
DROPPED = "dropped records"
PATIENCE_S = 180
AT_ONCE = 3  # cases; they wait for Spark's planning more than they compute


@cache
def session() -> Any:
    """One Spark session for all cases."""
    from penstock.engines.spark.session import spark_for

    return spark_for({"spark.master": "local[2]"}, "conformance", tempfile.gettempdir()).session


def run_case(case: Case, mode: str = "micro_batch") -> str | None:
    """The first difference in a mode; None when the case agrees."""
    run = interpret(case)
    if not is_comparable(case):
        raise LeftOut("its record holds what differs on Spark")
    differences = _run(case, run, mode)
    free = free_names(run.topology, cached=int(run.config.get("statestore.cache.max.bytes", 0)) > 0)
    if mode == "micro_batch" and free and differences and {*differences} <= {*free, DROPPED}:
        differences = _run(case, interpret(case), mode, longest=1)
    return next(iter(differences.values()), None)


def _run(case: Case, run: Interpreted, mode: str, longest: int = LONGEST) -> dict[str, str]:
    root = Path(tempfile.mkdtemp(prefix="penstock-case-"))
    try:
        return (_SparkCase if mode == "micro_batch" else _ThreadsCase)(case, run, root, longest).run()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def results(cases: Sequence[Case], mode: str = "micro_batch") -> Iterator[tuple[Case, str | None]]:
    """Each case with its first difference, in order; a few run at a time."""

    def result(case: Case) -> str | None:
        try:
            return run_case(case, mode)
        except NotBuilt as error:
            return f"not built: {error}"
        except Exception as error:  # noqa: BLE001 - it is this case's result
            return f"{type(error).__name__}: {error}"

    yield from zip(cases, in_parallel(result, cases), strict=True)


def in_parallel(call: Callable[[Case], Result], cases: Sequence[Case]) -> Iterator[Result]:
    """What a function gives for each case, in order; a few run at a time, in one Spark session."""
    session()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(call, cases)


def is_comparable(case: Case) -> bool:
    """Whether the record does not depend on a clock that stands still, or on the driver's own interleaving.

    Nor on headers in stores, which micro-batches refuse to keep.
    """
    keeps_headers = str(case["config"].get("dsl.store.format")).upper() == "HEADERS"
    has_clock = any("advance_wall_clock_ms" in record for record in case["inputs"])
    return not keeps_headers and not has_clock and not is_of_the_driver(case)


def has_one_input(case: Case) -> bool:
    """Whether all records come from one topic, so that threads read them in one order."""
    return len({record["topic"] for record in case["inputs"] if "topic" in record}) == 1


class _SparkCase:
    settings: Mapping[str, Any] = {"processing.mode": "micro_batch", "commit.interval.ms": 0}
    longest = LONGEST

    def __init__(self, case: Case, run: Interpreted, root: Path, longest: int = LONGEST) -> None:
        self.case = case
        self.longest = longest
        self.interpreted = run
        self.log: EmbeddedLog = open_log(f"sqlite:///{root / 'log.db'}?synchronous=off")
        for topic in run.serdes:
            self.log.create_topic(topic, 1, {"retention.ms": "-1"})
        self.config = StreamsConfig(
            {
                "application.id": "app",
                "bootstrap.servers": self.log.url,
                "state.dir": str(root / "state"),
                **self.settings,
                **run.config,
            }
        )
        self.joins_by_foreign_key = any(n["op"] == "fkJoin" for n in case["topology"])
        self.dropped = 0
        self.batch = -1
        self.positions: dict[str, int] = {}
        self.moved = threading.Condition()

    def run(self) -> dict[str, str]:
        """The differences, by topic and store; what concerns the whole case is under ""."""
        deadly = bool(self.case["outputs"]) and any("error" in row for row in self.case["outputs"][-1])
        plan = plan_for(self.interpreted.topology, self.config, self.log)
        # A session of its own over the one Spark: names of queries are unique in a session only.
        app = KafkaStreams(self.interpreted.topology, self.config, session=session().newSession())
        app.add_progress_listener(self._on_batch)
        app.set_uncaught_exception_handler(lambda _: self._wake())
        app.start()
        try:
            for chunk in self.chunks():
                self._append(chunk)
                self._settle(app)
        except PenstockError as error:
            return {} if deadly else {"": f"{type(error).__name__}: {error}"}
        finally:
            app.close()
        if deadly:
            return {"": "the application should have failed"}
        exact = len(plan.subtopologies) == 1 and int(self.config["statestore.cache.max.bytes"]) == 0
        return dict(self._differences(plan, exact=exact))

    def chunks(self) -> list[list[Row]]:
        """The inputs up to the one that fails. A foreign-key join drops answers to a row that has changed since."""
        records = self.case["inputs"][: len(self.case["outputs"])]
        return cut_in_order(
            records, longest=self.longest, everywhere=self._everywhere(), keys_once=self.joins_by_foreign_key
        )

    def _everywhere(self) -> set[str]:
        return {t for node in self.interpreted.topology.sources if node.global_store for t in node.topics}

    def _on_batch(self, progress: Any) -> None:
        self.dropped += progress.dropped
        self.batch = progress.batch
        for task in progress.tasks:
            self.positions |= task["ends"]
        self._wake()

    def _wake(self) -> None:
        with self.moved:
            self.moved.notify_all()

    def _append(self, records: list[Row]) -> None:
        batches = input_batches(records, self.interpreted.serdes)
        with self.log.transaction("") as transaction:  # a batch sees all of a chunk or nothing
            for topic, batch in batches.items():
                transaction.append(topic, 0, batch)

    def _ends(self) -> dict[TopicPartition, int]:
        """The ends of the topics from outside."""
        found = source_topics(self.interpreted.topology, [t.name for t in self.log.topics()]).values()
        others = {*self.interpreted.topology.internal_topics, *self._everywhere()}
        return self.log.end_offsets([t for each in found for t in each if t not in others])

    def _settle(self, app: KafkaStreams) -> None:
        """Waits until everything that is in the source topics has been processed."""
        ends = {f"{tp.topic}-{tp.partition}": end for tp, end in self._ends().items()}

        def is_done() -> bool:
            return app.error is not None or all(self.positions.get(name, 0) >= end for name, end in ends.items())

        with self.moved:
            caught_up = self.moved.wait_for(is_done, PATIENCE_S)
        if app.error is not None:
            raise app.error
        if not caught_up:
            raise TimeoutError("the application did not catch up")

    def _differences(self, plan: Any, *, exact: bool) -> Iterator[tuple[str, str]]:
        cached = int(self.config["statestore.cache.max.bytes"]) > 0
        rows = [
            {**row, "value": comparable(row["value"])}
            for caused in self.case["outputs"]
            for row in caused
            if "topic" in row and not row["topic"].startswith("@")
        ]
        written = self._written()
        if len(plan.subtopologies) > 1:
            rows, written = ([{**row, "value": timeless(row["value"])} for row in each] for each in (rows, written))
        expected, actual = by_topic(rows), by_topic(written)
        if not exact:
            expected = {topic: newest(found, timed=not cached) for topic, found in expected.items()}
            actual = {topic: newest(found, timed=not cached) for topic, found in actual.items()}
        agree = True
        for topic in sorted({*expected, *actual}):
            if found := first_difference(f"outputs[{topic}]", expected.get(topic), actual.get(topic)):
                agree = False
                yield topic, found
        for store, recorded in self.case["stores"].items():
            rows = sorted_store(self._dump(plan, store))
            # The Java driver's cache still shows windows that have expired in the store below it.
            first = min((row["start"] for row in rows), default=1 << 62) if self._is_cached_window(store) else 0
            wanted = [row for row in recorded if row.get("start", 0) >= first]
            if found := first_difference(f"store {store}", wanted, rows):
                agree = False
                yield store, found
        # What is dropped on the way depends on the interleaving, with a cache and with foreign keys.
        if agree and not cached and not self.joins_by_foreign_key and (found := self._difference_in_drops()):
            yield DROPPED, found

    def _difference_in_drops(self) -> str | None:
        found = first_difference(DROPPED, self.case["dropped_records"], self.dropped)
        return found if found and self.dropped + self._unread_drops() != self.case["dropped_records"] else None

    def _unread_drops(self) -> int:
        """What is dropped of the last records of global topics: only a batch with other records reads them."""
        chunks = self.chunks()
        while chunks and chunks[-1][-1]["topic"] in self._everywhere():
            chunks.pop()
        read = Counter(record["topic"] for chunk in chunks for record in chunk)
        drops = Drops()
        with closing(self._global_copy("unread")) as stores:
            stores.move_to({TopicPartition(topic, 0): read[topic] for topic in self._everywhere()})
            stores.move_to(sensor=drops)
        return drops.records

    def _written(self) -> list[Row]:
        rows: list[Row] = []
        found = source_topics(self.interpreted.topology, [t.name for t in self.log.topics()])
        sources = {t for topics in found.values() for t in topics}
        sinks = {node.topic for node in self.interpreted.topology.sinks}
        for topic, (keys, values) in self.interpreted.serdes.items():
            if topic in sources and topic not in sinks:
                continue
            records = self.log.read(topic, 0, 0, 1_000_000).records.to_pylist()
            for record in records:
                row = {
                    "topic": topic,
                    "key": plain(keys.deserialize(record["key"])),
                    "value": comparable(plain(values.deserialize(record["value"]))),
                    "timestamp": record["timestamp"],
                }
                if record["headers"]:
                    row["headers"] = header_rows((h["key"], h["value"]) for h in record["headers"])
                rows.append(row)
        return rows

    def _is_cached_window(self, store: str) -> bool:
        spec = self.interpreted.topology.stores[store]
        return spec.kind == "window" and int(self.config["statestore.cache.max.bytes"]) > 0

    def _dump(self, plan: Any, name: str) -> list[Row]:
        topology = self.interpreted.topology
        if name in topology.global_stores:
            with closing(self._global_copy("dump")) as stores:
                stores.move_to()
                return self.interpreted.dump_store(_OneStore(stores.views.view(topology.stores[name])), name)
        sub = next(s for s in plan.subtopologies if name in s.stores)
        places = Locations.of(self.config)
        specs = [self.interpreted.topology.stores[s] for s in sub.stores]
        with TaskStore(
            StatePlace(places.checkpoint, places.replicas), StateOwner("app"), f"{sub.id}_0", specs
        ) as store:
            state = store.read_committed((self.batch + 1) * len(sub.levels) - 1)
            view = open_view(self.interpreted.topology.stores[name], state.map(name), state.meta)
            return self.interpreted.dump_store(_OneStore(view), name)

    def _global_copy(self, name: str) -> GlobalStores:
        place = f"{Locations.of(self.config).replicas}/{name}"
        return GlobalStores(self.interpreted.topology, self.config, self.log, place, name)


class _ThreadsCase(_SparkCase):
    settings: Mapping[str, Any] = {"processing.mode": "continuous", "commit.interval.ms": 10}

    def _on_batch(self, progress: Any) -> None:
        self.dropped += progress.dropped

    def chunks(self) -> list[list[Row]]:
        found = super().chunks()
        return found if has_one_input(self.case) else [[record] for chunk in found for record in chunk]

    def _settle(self, app: KafkaStreams) -> None:
        plan, ends = plan_for(self.interpreted.topology, self.config, self.log), self._ends()
        eventually(lambda: app.error is not None or has_reached(self.log, plan, ends), PATIENCE_S)
        if app.error is not None:
            raise app.error

    def _unread_drops(self) -> int:
        return 0

    def _dump(self, plan: Any, name: str) -> list[Row]:
        home = next(sub.id for sub in plan.subtopologies if name in sub.stores)
        thread, lease = start_thread(self.interpreted.topology, self.config, self.log)
        try:
            return self.interpreted.dump_store(_OneStore(thread.store(TaskId(home, 0), name)), name)
        finally:
            thread.close(commit=False)
            self.log.release_lease(lease)


class _OneStore:
    """Looks like a driver to `Interpreted.dump_store`."""

    def __init__(self, view: Any) -> None:
        self._view = view

    def store(self, name: str) -> Any:
        return self._view
