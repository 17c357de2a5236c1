"""Global stores in workers: one copy a machine, as new as its topics when a task begins."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from worker_support import ROWS, append, loaded, prepared, report, run, two_workers, written

from penstock import Materialized, StreamsBuilder
from penstock.engines import global_store_copy as global_copy
from penstock.engines.app_metrics import AppMetrics
from penstock.engines.lifecycle import State
from penstock.engines.micro_batches.worker import task_attempt
from penstock.engines.spark.progress import batch_progress
from penstock.log.embedded.log import EmbeddedLog
from penstock.runtime.sensor import Sensor
from penstock.state import maps as replica
from penstock.state.lmdb_replicas.folders import global_place
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica
from penstock.state.maps import ReplicaPosition
from penstock.topology.configured import with_serdes

Prepared = tuple[bytes, EmbeddedLog]


class LookUp:
    """Forwards what the global table has under the record's key."""

    def init(self, context: Any) -> None:
        self.context = context
        self.names = context.get_state_store("names")

    def process(self, record: Any) -> None:
        found = self.names.get(record.key)
        self.context.forward(record.with_value(found.value if found else "?"))

    def close(self) -> None: ...


def topology() -> Any:
    builder = StreamsBuilder()
    builder.global_table("names", materialized=Materialized("names"))
    words = builder.stream("words")
    words.group_by_key().count(Materialized("counts")).to_stream().to("counts")
    words.process(LookUp).to("out")
    return builder.build()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Prepared]:
    with prepared(tmp_path, topology(), ["names", "words", "counts", "out"]) as (data, log):
        append(log, "words", [(f"w{i % 2}", "v") for i in range(10 * ROWS)])
        yield data, log


def seen(data: bytes, batch: int) -> set[tuple[str, str]]:
    return {(key, value.decode()) for key, value in written(data, "out")[batch * ROWS : (batch + 1) * ROWS]}


def test_a_batch_sees_what_was_there_before_it(app: Prepared) -> None:
    data, log = app
    append(log, "names", [("w0", "zero")])
    run(data, 0)
    run(data, 1)
    append(log, "names", [("w1", "one"), ("w0", "null")])
    run(data, 2)
    assert seen(data, 0) == seen(data, 1) == {("w0", "zero"), ("w1", "?")}
    assert seen(data, 2) == {("w0", "null"), ("w1", "one")}


def test_the_workers_of_a_machine_share_one_copy(app: Prepared) -> None:
    data, log = app
    with two_workers() as workers:
        for batch in range(6):
            append(log, "names", [("w0", f"name {batch}")])
            workers[batch % 2].submit(run, data, batch).result()
            assert seen(data, batch) == {("w0", f"name {batch}"), ("w1", "?")}
        copies = list(Path(loaded(data).replica_root).glob("global-*/slot-*"))
        assert [copy.name for copy in copies] == ["slot-0"]


def test_a_worker_of_many_applications_goes_on_with_a_log_that_it_has_closed(app: Prepared) -> None:
    data, log = app
    append(log, "names", [("w0", "zero")])
    run(data, 0)
    for number in range(2 * task_attempt._MOST_LOGS):
        task_attempt.log_of(replace(loaded(data), epoch=1_000 + number))
    append(log, "names", [("w1", "one")])
    run(data, 1)
    assert seen(data, 1) == {("w0", "zero"), ("w1", "one")}


def test_a_copy_that_is_gone_is_rebuilt(app: Prepared) -> None:
    data, log = app
    append(log, "names", [("w0", "zero"), ("w1", "one")])
    run(data, 0)
    shutil.rmtree(loaded(data).replica_root)
    run(data, 1)
    assert seen(data, 1) == {("w0", "zero"), ("w1", "one")}


def test_a_topic_that_was_made_anew(app: Prepared) -> None:
    data, log = app
    append(log, "names", [("w0", "zero"), ("w1", "one")])
    run(data, 0)
    log.delete_topic("names")
    log.create_topic("names", 1)
    append(log, "names", [("w1", "eins")])
    run(data, 1)
    assert seen(data, 1) == {("w0", "?"), ("w1", "eins")}


def test_a_topic_that_was_made_again_makes_a_new_copy(app: Prepared) -> None:
    data, log = app
    append(log, "names", [("w0", "zero"), ("w1", "one")])
    run(data, 0)
    log.delete_topic("names")
    log.create_topic("names", 1)
    append(log, "names", [("w0", "nought"), ("w2", "two"), ("w3", "three")])
    run(data, 1)
    assert seen(data, 1) == {("w0", "nought"), ("w1", "?")}


def test_a_copy_of_an_earlier_version_is_filled_anew(app: Prepared) -> None:
    data, log = app
    append(log, "names", [("w0", "zero"), ("w1", "one"), ("w2", "two")])
    run(data, 0)
    task_attempt.close_global_stores()
    job = loaded(data)
    identity = f"{job.plan.application_id} {job.checkpoint} {job.fingerprint}"
    copy = LmdbReplica(global_place(job.replica_root, identity), identity, ["names"])
    assert copy.position.notes  # it is the copy
    rows = {"names": [([b"w1"], [None])]}
    copy.apply(["names"], rows.__getitem__, ReplicaPosition(batch=3, meta={"offset/names-0": 3}))
    copy.close()
    run(data, 1)
    assert seen(data, 1) == {("w0", "zero"), ("w1", "one")}


HOUR_MS = 3_600_000


class Hours:
    """The clocks that notes are made by, and how often copies were emptied."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = self.emptied = 0
        for name in ("unix_ms", "since_boot_ms"):
            real = getattr(replica, name)
            monkeypatch.setattr(replica, name, lambda real=real: real() + self.passed * HOUR_MS)
        reset = LmdbReplica.reset

        def counted(replica: LmdbReplica) -> None:
            self.emptied += 1
            reset(replica)

        monkeypatch.setattr(LmdbReplica, "reset", counted)


class Marked:
    """A log whose partitions end with the mark of a transaction."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def end_offsets(self, topics: Any) -> Any:
        return {tp: end + 1 for tp, end in self._log.end_offsets(topics).items()}

    def iterate(self, topic: str, partition: int, start: int, end: int) -> Any:
        last = self._log.end_offset(topic, partition)
        return self._log.iterate(topic, partition, min(start, last), min(end, last))


@pytest.mark.parametrize("is_marked", [False, True])
def test_a_copy_whose_topic_is_looked_at_is_not_filled_anew_after_a_long_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_marked: bool
) -> None:
    with prepared(tmp_path, topology(), ["names", "words", "counts", "out"]) as (data, log):
        log.alter_config("names", {"cleanup.policy": "compact"})
        append(log, "names", [("w0", "zero"), ("w1", "one")])
        job, hours = loaded(data), Hours(monkeypatch)
        typed = with_serdes(job.topology, job.config)
        seen_log: Any = Marked(log) if is_marked else log
        with closing(global_copy.GlobalStores(typed, job.config, seen_log, str(tmp_path / "copies"), "copy")) as copy:
            copy.move_to()
            emptied = hours.emptied  # when it was made
            for _ in range(30):
                hours.passed += 1
                copy.move_to(seen_log.end_offsets(copy.topics))
            append(log, "names", [("w1", "eins"), ("w2", "two")])
            copy.move_to(seen_log.end_offsets(copy.topics))
            assert hours.emptied == emptied
            hours.passed += 25  # nobody looks
            append(log, "names", [("w3", "three"), ("w4", "four")])
            copy.move_to(seen_log.end_offsets(copy.topics))
            assert hours.emptied == emptied + 1
            assert [key for key, _ in copy.views.view(typed.stores["names"]).all()] == ["w0", "w1", "w2", "w3", "w4"]


def test_a_copy_that_lacks_only_the_mark_of_a_transaction_has_missed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prepared(tmp_path, topology(), ["names", "words", "counts", "out"]) as (data, log):
        log.alter_config("names", {"cleanup.policy": "compact"})
        append(log, "names", [("w0", "zero")])
        job, hours, marked = loaded(data), Hours(monkeypatch), Marked(log)
        typed = with_serdes(job.topology, job.config)
        emptied = []
        for seen_log in (log, marked):
            with closing(
                global_copy.GlobalStores(typed, job.config, seen_log, str(tmp_path / "copies"), "copy")  # type: ignore[arg-type]
            ) as copy:
                copy.move_to()
            emptied.append(hours.emptied)
            hours.passed += 25
    assert emptied[0] == emptied[1]


def test_dropped_records_of_global_tables_count_for_the_global_task(tmp_path: Path) -> None:
    settings = {"metrics.recording.level": "DEBUG"}
    topics = ["names", "words", "counts", "out"]
    with prepared(tmp_path, topology(), topics, **settings) as (data, log):
        append(log, "words", [("w0", "v")] * 3 * ROWS)
        append(log, "names", [("w0", "zero"), ("w1", "one")])
        without_key = pa.RecordBatch.from_pydict({"key": pa.nulls(1, pa.large_binary()), "value": [b"lost"]})
        metrics = AppMetrics(loaded(data).topology, loaded(data).config, lambda: State.RUNNING)
        everywhere = {"group": "stream-task-metrics", "task_id": "-1_-1", "thread_id": "app-GlobalStreamThread"}
        assert metrics.registry.value("dropped-records-total", **everywhere) == 0
        for batch in range(3):
            if batch == 1:
                log.append("names", 0, without_key)
            metrics(batch_progress(batch, [report(data, batch)]))
        metrics.catch_up()
    assert metrics.registry.value("dropped-records-total", **everywhere) == 1
    assert metrics.registry.total("dropped-records-total", group="stream-task-metrics") == 1
    assert metrics.registry.value("process-total", **everywhere) == 3
    (dropped,) = metrics.registry.find("dropped-records-total", group="penstock-metrics")
    assert dict(dropped.metric_name.tags)["processor-node-id"] == "KTABLE-SOURCE-0000000001"
    assert metrics.registry.value("estimate-num-keys", lmdb_state_id="names", task_id="-1_-1") == 2
    assert metrics.registry.value("put-rate", lmdb_state_id="names", task_id="-1_-1") > 0
    assert [batch.dropped for batch in metrics.batches] == [0, 1, 0]
    assert metrics.batches.newest.drops == {}


class _EndsAfter(Sensor):
    """Ends the process's work when so many pieces are in the copy."""

    def __init__(self, pieces: int) -> None:
        self.left = pieces

    def on_flushed(self, task_id: str, changes: Any, seconds: float) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.parametrize("pieces", [1, 2, 3, 4, 5])
def test_a_copy_whose_making_ends_in_any_of_its_pieces_lacks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    monkeypatch.setattr(global_copy, "_PIECE_RECORDS", 3)
    with prepared(tmp_path, topology(), ["names", "words", "counts", "out"]) as (data, log):
        log.create_partitions("names", 2)
        for start in range(0, 10, 2):
            append(log, "names", [(f"k{n}", "v") for n in range(start, start + 2)])
        column = pa.array([b"l0", b"l1"], pa.large_binary())
        for _ in range(2):
            log.append("names", 1, pa.RecordBatch.from_pydict({"key": column, "value": column}))
        job = loaded(data)
        root = str(tmp_path / "copies")
        typed = with_serdes(job.topology, job.config)
        first = global_copy.GlobalStores(typed, job.config, log, root, "copy")
        with suppress(KeyboardInterrupt):
            first.move_to(sensor=_EndsAfter(pieces))
        first.close()
        second = global_copy.GlobalStores(typed, job.config, log, root, "copy")
        second.move_to()
        shown = [key for key, _ in second.views.view(typed.stores["names"]).all()]
        second.close()
    assert shown == [*(f"k{n}" for n in range(10)), "l0", "l1"]
