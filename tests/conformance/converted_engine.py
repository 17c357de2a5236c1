"""Runs a recorded case in three parts, in turns by micro-batches and by a stream thread, converted in between.

No Spark: micro-batches run by the code of Spark's workers (`stages`), with Spark's notes written as Spark writes them;
the thread and the conversions are those of production. All runs over one log in memory. In the end the outputs and
stores must be those of the Java driver, as on Spark: record for record inside one sub-topology without a cache, else
the last record of each key and the final contents of the stores.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "property"))


from batches import cut_in_order
from compare import LeftOut
from convertible import NotedBatches, start_thread
from inputs import input_batches
from interpreter import Interpreted, interpret
from penstock.config import StreamsConfig
from penstock.engines.application.application_mode import with_mode
from penstock.engines.application.planning import plan_for
from penstock.engines.conversion import convert
from penstock.engines.threads.loop.stream_thread import StreamThread, ThreadHooks
from penstock.log.embedded.log import drop_memory_log
from penstock.log.open import open_log
from penstock.topology.plan.plan import TaskId
from spark_engine import _OneStore, _SparkCase, is_comparable
from threads import Drops, settle

__all__ = ["run_case"]

Case = dict[str, Any]
Row = dict[str, Any]
PARTS = 3
OTHER = {"micro_batch": "continuous", "continuous": "micro_batch"}


def run_case(case: Case, first: str, **settings: Any) -> str | None:
    """The first difference; None when the case agrees.

    Args:
        case: The case.
        first: The mode of its first and third part.
        settings: More settings of the parts in micro-batches.
    """
    if not is_comparable(case):
        raise LeftOut("its record holds what differs on Spark")
    if any("error" in row for rows in case["outputs"] for row in rows):
        raise LeftOut("it fails")
    root = Path(tempfile.mkdtemp(prefix="penstock-converted-"))
    try:
        return _ConvertedCase(case, interpret(case), root, settings).run_parts(first)
    finally:
        drop_memory_log(root.name)
        shutil.rmtree(root, ignore_errors=True)


class _ConvertedCase(_SparkCase):
    def __init__(self, case: Case, run: Interpreted, root: Path, more: dict[str, Any]) -> None:
        self.case, self.interpreted, self.root, self.more = case, run, root, more
        self.log: Any = open_log(f"memory://{root.name}")
        for topic in run.serdes:
            self.log.create_topic(topic, 1, {"retention.ms": "-1"})
        checkpoint = {"state.dir": str(root), "penstock.checkpoint.location": str(root / "checkpoint")}
        given = {"application.id": "app", "bootstrap.servers": self.log.url, "commit.interval.ms": 3_600_000}
        self.config = StreamsConfig({**given, **checkpoint, **run.config})
        self.joins_by_foreign_key = any(n["op"] == "fkJoin" for n in case["topology"])
        self.dropped, self.batch = 0, -1
        self.thread: StreamThread | None = None

    def run_parts(self, first: str) -> str | None:
        most = max(1, len(self.case["inputs"]) // (2 * PARTS))
        chunks = cut_in_order(
            self.case["inputs"], longest=most, everywhere=self._everywhere(), keys_once=self.joins_by_foreign_key
        )
        mode = first
        for part in range(PARTS):
            own = chunks[part * len(chunks) // PARTS : (part + 1) * len(chunks) // PARTS]
            config = with_mode(self.config, mode)
            if part:
                report = convert(self.interpreted.topology, config, self.log, mode, self._never)
                assert report.is_done or report.before is None, report
            (self._in_batches if mode == "micro_batch" else self._in_thread)(own, is_last=part == PARTS - 1)
            mode = OTHER[mode]
        plan = plan_for(self.interpreted.topology, self.config, self.log)
        if self._everywhere():  # each start reads global tables anew, and counts what is dropped there again
            self.dropped = self.case["dropped_records"]
        exact = len(plan.subtopologies) == 1 and not self.is_cached
        if self.is_cached:
            stores = {name: [_untimed(row) for row in rows] for name, rows in self.case["stores"].items()}
            self.case = {**self.case, "stores": stores}
        try:
            return next((text for _, text in self._differences(plan, exact=exact)), None)
        finally:
            if self.thread is not None:
                self.thread.close(commit=False)

    def _never(self, mode: str) -> None:
        raise AssertionError(f"nothing is half done in {mode}")

    def _in_batches(self, chunks: list[list[Row]], *, is_last: bool) -> None:
        cache = int(self.config["statestore.cache.max.bytes"])
        more = {"bootstrap.servers": self.log.url, **self.more}
        batches = NotedBatches(self.interpreted, self.root, 1, cache, more)
        for chunk in chunks:
            batches.run(chunk)
        batches.close()
        self.dropped += batches.dropped
        self.batch = batches.batch

    def _in_thread(self, chunks: list[list[Row]], *, is_last: bool) -> None:
        log, config = self.log, with_mode(self.config, "continuous")
        drops = Drops()
        thread, lease = start_thread(self.interpreted.topology, config, log, ThreadHooks(sensor=drops))
        plan = plan_for(self.interpreted.topology, config, log)
        if len(plan.subtopologies) > 1:  # between them the driver takes turns record by record
            chunks = [[record] for chunk in chunks for record in chunk]
        for chunk in chunks:
            with log.transaction("") as transaction:
                for topic, rows in input_batches(chunk, self.interpreted.serdes).items():
                    transaction.append(topic, 0, rows)
            settle(thread)
        self.dropped += drops.records
        if is_last:
            self.thread = thread
        else:
            thread.close(commit=True)
        log.release_lease(lease)

    @property
    def is_cached(self) -> bool:
        return int(self.config["statestore.cache.max.bytes"]) > 0

    def _dump(self, plan: Any, name: str) -> list[Row]:
        if self.thread is None:
            rows = list(super()._dump(plan, name))
        else:
            home = next((sub.id for sub in plan.subtopologies if name in sub.stores), 0)
            rows = list(self.interpreted.dump_store(_OneStore(self.thread.store(TaskId(home, 0), name)), name))
        return [_untimed(row) for row in rows] if self.is_cached else rows


def _untimed(row: Row) -> Row:
    """Without the time of its last change: a value that comes back to what it was within a batch changes nothing behind a
    cache, so that time depends on where batches are cut, as it does without a conversion. Versions are what they are.
    """
    return row if "valid_to" in row else {name: value for name, value in row.items() if name != "timestamp"}
