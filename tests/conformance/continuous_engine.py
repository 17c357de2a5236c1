"""Runs a recorded case through a stream thread, over an embedded log in memory.

Each input is appended to its topic, and the thread steps until nothing moves; then the outputs of that input must be
those of the Java driver, topic by topic, what ``peek`` and ``foreach`` see included. With ``splits`` several inputs are
appended at once, in chunks in which Kafka's own rule (the partition with the smallest head goes first) keeps the order
of the case. Wall-clock time is the case's.

Two promises are weaker, as on Spark: with caching, a batch sends the last change of a key; and between sub-topologies
the driver takes turns record by record, where a thread hands on all records of a commit. Such a case passes, too, if
the last record of each key and the final contents of the stores are those of the driver. A few whose records hold what nothing but the driver's
interleaving and cache produce are left out if they differ (`is_of_the_driver`). As in the driver, such cases are never split: a join of a repartitioned
stream sees a table as it is when the records come back, in Kafka, too.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from batches import cut_in_order
from compare import LeftOut, by_topic, comparable, first_difference, is_of_the_driver, newest, sorted_store, timeless
from inputs import header_rows, input_batches
from interpreter import Interpreted, interpret
from java_errors import CLASSES, ERROR, same_error, seen_rows
from penstock.config import StreamsConfig
from penstock.engines.threads.loop.stream_thread import ThreadHooks
from penstock.errors import PenstockError
from penstock.log.base import TopicPartition
from penstock.log.open import open_log
from penstock.topology.plan.plan import TaskId
from things import plain
from threads import Drops, new_thread, settle, thread_app

__all__ = ["run_case"]

Case = dict[str, Any]
Row = dict[str, Any]
OF_THE_DRIVER = "its record holds what only the Java driver's interleaving and cache produce"
OF_QUERIES = "its queries, which are left out here, decide what the store forgets"


def run_case(case: Case, splits: int | None) -> tuple[str | None, bool]:
    """The first difference (None: the case agrees), and whether the inputs were really split.

    Queries are left out: they are answered from committed state, and what the case has recorded is the driver's.
    """
    if "isolation_log" in str(case["topology"]):
        raise LeftOut("its processor asks the test driver")
    case = _without_queries(case)
    with open_log(f"memory://{uuid.uuid4().hex}") as log:
        try:
            started = _ContinuousCase(case, interpret(case), log)
        except PenstockError as error:
            if "build_error" in case:
                return same_error(case["build_error"], error), False
            raise
        if "build_error" in case:
            return started.refusal(case["build_error"]), False
        if started.interpreted.refused is not None:
            raise LeftOut("the test driver refuses its records, which a log would take")
        return started.run(splits)


def _without_queries(case: Case) -> Case:
    kept = [number for number, record in enumerate(case["inputs"]) if "query" not in record]
    if len(kept) == len(case["inputs"]):
        return case
    if any(node.get("type") == "lru" for node in case["topology"]):
        raise LeftOut(OF_QUERIES)
    outputs = [case["outputs"][number] for number in kept if number < len(case["outputs"])]
    return {**case, "inputs": [case["inputs"][number] for number in kept], "outputs": outputs}


class _ContinuousCase:
    def __init__(self, case: Case, run: Interpreted, log: Any) -> None:
        self.case = case
        self.interpreted = run
        self.log = log
        for topic in run.serdes:
            log.create_topic(topic, 1, {"retention.ms": "-1"})
        self.now_ms = 0
        config = {"application.id": "app", "bootstrap.servers": log.url, "commit.interval.ms": 3_600_000, **run.config}
        self.app = thread_app(run.topology, StreamsConfig(config), log)
        self.drops = Drops()
        self.thread = new_thread(self.app, log, hooks=ThreadHooks(sensor=self.drops, clock=lambda: self.now_ms))
        self.own: set[tuple[str, int]] = set()  # topic and offset of the inputs
        self.read: dict[str, int] = dict.fromkeys(run.serdes, 0)

    def refusal(self, recorded: Row) -> str | None:
        """The difference between the recorded error and that of the thread's start, where processors are made."""
        try:
            self.thread.start()
        except (Exception, CLASSES[ERROR]) as error:  # noqa: BLE001 - a failure is the result
            return same_error(recorded, error)
        finally:
            self.thread.close(commit=False)
        return f"the topology should be refused: {recorded['message']}"

    def run(self, splits: int | None) -> tuple[str | None, bool]:
        outputs = self.case["outputs"]
        deadly = len(outputs) - 1 if outputs and any("error" in row for row in outputs[-1]) else None
        chunks = self._chunks(splits, deadly)
        is_split = len(chunks) < len(outputs)
        expected: list[Row] = []
        written: list[Row] = []
        difference: str | None = None
        self.thread.start()
        try:
            for chunk in chunks:
                self.interpreted.side.clear()
                try:
                    self._feed([self.case["inputs"][i] for i in chunk])
                except (Exception, CLASSES[ERROR]) as error:  # noqa: BLE001 - a failure is a result here
                    if chunk != [deadly]:
                        return f"input {chunk}: {error!r}", is_split
                    recorded = next(row for row in outputs[deadly] if "error" in row)
                    difference = difference or same_error(recorded, error)
                    break
                if chunk == [deadly]:
                    return f"input {deadly}: should have failed with {outputs[deadly][0]['error']}", is_split
                expected += (caused := [row for i in chunk for row in outputs[i]])
                written += (found := self._written())
                what = f"outputs of inputs {chunk[0]}..{chunk[-1]}"
                difference = difference or self._difference(what, by_topic(caused), by_topic(found))
                if difference and self._must_be_exact:
                    return difference, is_split
            if difference:  # then at least what is true in the end
                if is_of_the_driver(self.case):
                    raise LeftOut(OF_THE_DRIVER)
                difference = self._difference("newest outputs", self._newest(expected), self._newest(written))
            if difference or deadly is not None:
                return difference, is_split
            difference = self._state(is_exact=self._must_be_exact) or self._unknown_numbers()
            if difference and not self._must_be_exact and is_of_the_driver(self.case):
                raise LeftOut(OF_THE_DRIVER)
            return difference, is_split
        finally:
            self.thread.close(commit=False)

    def _difference(self, what: str, expected: dict[str, list[Row]], found: dict[str, list[Row]]) -> str | None:
        return first_difference(what, expected, seen_rows(expected, found, self.now_ms))

    @property
    def _is_cached(self) -> bool:
        return int(self.app.config["statestore.cache.max.bytes"]) > 0

    @property
    def _must_be_exact(self) -> bool:
        plan = self.app.plan
        return len(plan.subtopologies) == 1 and not plan.internal_topics and not self._is_cached

    def _newest(self, rows: list[Row]) -> dict[str, list[Row]]:
        seen = [row | {"value": self._comparable(row["value"])} for row in rows if row.get("topic", "@")[0] != "@"]
        return {topic: newest(each, timed=not self._is_cached) for topic, each in by_topic(seen).items()}

    @staticmethod
    def _comparable(value: Any) -> Any:
        return timeless(comparable(value))

    def _state(self, *, is_exact: bool) -> str | None:
        """The first difference between the stores, and the numbers of dropped records."""
        found: str | None = None
        for store, recorded in self.case["stores"].items():
            rows = sorted_store(self._dump(store))
            is_window = self._is_cached and self.interpreted.topology.stores[store].kind == "window"
            # The Java driver's cache still shows windows that have expired in the store below it.
            first = min((row["start"] for row in rows), default=1 << 62) if is_window else 0
            wanted = [row for row in recorded if row.get("start", 0) >= first]
            found = found or first_difference(f"store {store}", wanted, rows)
        if found or not is_exact:  # what is dropped on the way depends on the interleaving
            return found
        return first_difference("dropped records", self.case["dropped_records"], self.drops.records)

    def _unknown_numbers(self) -> str | None:
        """Numbers of a task that a later commit may need, although its plan says that nothing reads any."""
        for task, replica in self.thread._replicas.items():
            unknown = sorted(set(replica.state.meta) - {"stream_time"})
            if unknown and not self.app.subtopology(task).reads_numbers:
                return f"task {task} has numbers that its plan does not know of: {unknown}"
        return None

    def _chunks(self, splits: int | None, deadly: int | None) -> list[list[int]]:
        """The numbers of the inputs, chunk by chunk, up to the one that fails, which stands alone."""
        count = len(self.case["outputs"])
        if splits is None or not self._must_be_exact:
            return [[i] for i in range(count)]
        chunks: list[list[int]] = []
        run: list[Row] = []
        for i in range(count):
            record = self.case["inputs"][i] | {"number": i}
            if "topic" in record and i != deadly:
                run.append(record)
                continue
            chunks += self._cut(run, splits + i)
            chunks.append([i])
            run = []
        return chunks + self._cut(run, splits + count)

    def _cut(self, records: list[Row], seed: int) -> list[list[int]]:
        sources = self.interpreted.topology.sources
        everywhere = {t for node in sources if node.global_store for t in node.topics}
        by_key = any(n["op"] == "fkJoin" for n in self.case["topology"])
        cut = cut_in_order(records, seed, longest=25, everywhere=everywhere, keys_once=by_key)
        return [[record["number"] for record in chunk] for chunk in cut]

    def _feed(self, records: list[Row]) -> None:
        if "advance_wall_clock_ms" in records[0]:
            self.now_ms += records[0]["advance_wall_clock_ms"]
        else:
            self._append(records)
        settle(self.thread)

    def _append(self, records: list[Row]) -> None:
        with self.log.transaction("") as transaction:  # a poll sees all of a chunk or nothing
            for topic, batch in input_batches(records, self.interpreted.serdes).items():
                start = self.log.end_offset(topic, 0)
                self.own |= {(topic, start + n) for n in range(batch.num_rows)}
                transaction.append(topic, 0, batch)

    def _written(self) -> list[Row]:
        rows = list(self.interpreted.side)
        ends = self.log.end_offsets(sorted(self.interpreted.serdes))
        for topic in sorted(self.interpreted.serdes):
            keys, values = self.interpreted.serdes[topic]
            end = ends[TopicPartition(topic, 0)]
            if all((topic, offset) in self.own for offset in range(self.read[topic], end)):
                self.read[topic] = end  # nothing but inputs
                continue
            found = self.log.read(topic, 0, self.read[topic])
            self.read[topic] = found.next_offset
            for record in found.records.to_pylist():
                if (topic, record["offset"]) in self.own:
                    continue
                row = {
                    "topic": topic,
                    "key": plain(keys.deserialize(record["key"])),
                    "value": plain(values.deserialize(record["value"])),
                    "timestamp": record["timestamp"],
                }
                if record["headers"]:
                    row["headers"] = header_rows((h["key"], h["value"]) for h in record["headers"])
                rows.append(row)
        return rows

    def _dump(self, name: str) -> list[Row]:
        subs = self.app.plan.subtopologies
        home = next((sub.id for sub in subs if name in sub.stores), 0)
        return self.interpreted.dump_store(_OneStore(self.thread.store(TaskId(home, 0), name)), name)


class _OneStore:
    """Looks like a driver to `Interpreted.dump_store`."""

    def __init__(self, view: Any) -> None:
        self._view = view

    def store(self, name: str) -> Any:
        return self._view
