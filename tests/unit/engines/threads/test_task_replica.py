"""A task's replica: used, caught up or rebuilt, whatever a crash has left."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from replica_place import INPUT, app_of, running
from store_writes import SPECS, write

from penstock import Serdes
from penstock.base.clock import boot_id, since_boot_ms, unix_ms
from penstock.engines.threads.replicas.restoring import TaskPosition
from penstock.errors import InvalidStateError
from penstock.state.changelog import records_of_changes, records_of_puts
from penstock.state.changelog.formats import TaskNumbers
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.state.views import open_view
from penstock.topology.stores import StoreSpec

UNLOGGED = StoreSpec("u", "key_value", Serdes.string(), Serdes.string(), logging=False)
TABLE = StoreSpec("s", "timestamped", Serdes.string(), Serdes.string())


@pytest.fixture(params=["memory", "disk"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return None if request.param == "memory" else tmp_path


def test_a_commit_that_reached_the_log_alone_is_caught_up(directory: Path | None) -> None:
    with running([TABLE], directory) as task:
        task.view().put("a", "1", 5)
        task.view().put("b", "1", 5)
        task.commit()
        task.view().put("a", None)
        task.view().put("c", "2", 7)
        task.replica.state.meta["stream_time"] = 7
        task.write_log()
        task.crash()
        assert [(key, tuple(value)) for key, value in task.view().all()] == [("b", ("1", 5)), ("c", ("2", 7))]
        assert task.replica.state.meta == {"stream_time": 7}
        assert sum(each.restored for each in task.progress if each.is_done) == (4 if directory is None else 2)


def test_writes_that_were_not_committed_are_gone(directory: Path | None) -> None:
    with running([TABLE], directory) as task:
        view = task.view()
        view.put("a", "1", 5)
        task.commit()
        view.put("a", "2", 6)
        task.replica.discard()
        assert view.get("a").value == "1"
        view.put("a", "3", 6)
        task.crash()
        assert task.view().get("a").value == "1"


def test_a_lost_replica_is_rebuilt(tmp_path: Path) -> None:
    with running([TABLE], tmp_path) as task:
        for n in range(100):
            task.view().put(f"k{n % 10}", None if n % 3 == 0 else str(n), n)
            task.replica.state.meta["stream_time"] = n
            task.commit()
        rows, meta = task.rows(), dict(task.replica.state.meta)
        task.lose()
        assert (task.rows(), dict(task.replica.state.meta)) == (rows, meta)


def test_nothing_is_read_again_of_what_the_replica_has(tmp_path: Path) -> None:
    with running([TABLE], tmp_path) as task:
        task.view().put("a", "1", 5)
        task.commit()
        task.crash()
        assert task.progress == []
        assert task.view().get("a").value == "1"


def test_nothing_is_written_when_nothing_changed(directory: Path | None) -> None:
    with running([TABLE], directory) as task:
        assert task.replica.changes() == []
        task.view().put("a", "1", 5)
        parts = task.replica.changes()
        assert [topic for topic, _, _ in parts] == ["app-s-changelog", "app-penstock-numbers-changelog"]
        numbers = TaskNumbers.parse(parts[-1][2].column("value")[0].as_py())
        assert (numbers.batch, numbers.checksum) == (-1, "")


def test_numbers_that_nothing_reads_are_not_written(tmp_path: Path) -> None:
    with running([TABLE], tmp_path) as task:
        task.app = app_of([TABLE], task.root, task.log, reads_numbers=False)
        task.crash()
        for n in range(3):
            task.view().put("a", str(n), n)
            task.replica.state.meta["stream_time"] = n
            assert [topic for topic, _, _ in task.replica.changes()] == ["app-s-changelog"]
            task.commit() if n < 2 else task.write_log()
        task.crash()
        assert [(each.start, each.restored) for each in task.progress if each.is_done] == [(2, 1)]
        task.lose()
        assert task.view().get("a").value == "2"
        task.app = app_of([TABLE], task.root, task.log)  # as when a processor is added
        task.crash()
        assert task.view().get("a").value == "2"
        task.replica.state.meta["stream_time"] = 7
        task.commit()
        task.lose()
        assert (task.view().get("a").value, task.replica.state.meta) == ("2", {"stream_time": 7})


def test_a_store_without_a_changelog_is_kept_at_the_committed_positions(tmp_path: Path) -> None:
    with running([TABLE, UNLOGGED], tmp_path) as task:
        task.view("u").put("a", "1")
        task.commit()
        task.crash()
        assert task.view("u").get("a") == "1"


@pytest.mark.parametrize("moved", ["offsets", "changelog"])
def test_a_store_without_a_changelog_is_emptied_elsewhere(
    tmp_path: Path, moved: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running([TABLE, UNLOGGED], tmp_path) as task:
        task.view("u").put("a", "1")
        task.view("s").put("a", "1", 5)
        task.commit()
        task.view("s").put("a", "2", 6)
        if moved == "changelog":  # as by a punctuation: the input has not moved
            task.consumed -= 1
            task.write_log()
        else:
            task.log.commit_offsets("app", {INPUT: 7})
        task.crash()
        assert task.view("u").get("a") is None
        assert task.view("s").get("a").value == ("2" if moved == "changelog" else "1")
        assert "Task 0_0: u had to be emptied" in caplog.text


def test_a_source_topic_restores_up_to_the_committed_offset(directory: Path | None) -> None:
    spec = StoreSpec("s", "timestamped", Serdes.string(), Serdes.string(), logging=False, changelog_topic="in")
    with running([spec], directory) as task:
        keys, values = [b"a", b"b", None, b"a", b"b"], [b"1", b"1", b"x", None, b"2"]
        columns = [pa.array([1, 2, 3, 4, 5], pa.int64()), pa.array(keys), pa.array(values)]
        task.log.append("in", 0, pa.RecordBatch.from_arrays(columns, ["timestamp", "key", "value"]))
        for committed, expected in [(2, {"a": "1", "b": "1"}), (4, {"b": "1"}), (5, {"b": "2"}), (1, {"a": "1"})]:
            task.log.commit_offsets("app", {INPUT: committed})
            task.crash()
            assert {key: value.value for key, value in task.view().all()} == expected


def test_a_source_topic_is_not_read_again_after_a_commit(tmp_path: Path) -> None:
    spec = StoreSpec("s", "timestamped", Serdes.string(), Serdes.string(), logging=False, changelog_topic="in")
    with running([spec], tmp_path) as task:
        columns = [pa.array([1], pa.int64()), pa.array([b"a"]), pa.array([b"1"])]
        task.log.append("in", 0, pa.RecordBatch.from_arrays(columns, ["timestamp", "key", "value"]))
        task.view().put("a", "1", 1)
        task.commit()
        task.crash()
        assert (task.progress, task.view().get("a").value) == ([], "1")


def test_rows_of_another_layout_or_topic_are_not_used(tmp_path: Path) -> None:
    with running([TABLE], tmp_path) as task:
        task.view().put("a", "1", 5)
        task.commit()
        plain = replace(TABLE, kind="key_value")
        task.app = app_of([plain], task.root)
        task.specs = [plain]
        task.crash()
        assert task.view().get("a") == "1"
        for topic in ("app-s-changelog", "app-penstock-numbers-changelog"):
            task.log.delete_topic(topic)
        task.app = app_of([plain], task.root, task.log)
        task.crash()
        assert task.rows() == {"s": {}}


def test_rows_without_headers_are_not_used_for_a_store_that_keeps_them(tmp_path: Path) -> None:
    with running([TABLE], tmp_path) as task:
        for number, key in enumerate("abc"):
            task.view().put(key, str(number), 5)
            task.commit()
        with_headers = replace(TABLE, keeps_headers=True)
        task.app = app_of([with_headers], task.root)
        task.specs = [with_headers]
        task.crash()
        assert [tuple(entry) for _, entry in task.view().all()] == [("0", 5, ()), ("1", 5, ()), ("2", 5, ())]


def test_a_replica_that_may_have_missed_deletions_is_not_used(tmp_path: Path) -> None:
    with running([TABLE], tmp_path) as task:
        task.log.alter_config("app-s-changelog", {"delete.retention.ms": "0"})
        for key in "ab":
            task.view().put(key, "1", 5)
        task.commit()
        task.crash()
        assert task.progress == []
        task.view().put("a", None)
        task.write_log()
        task.crash()
        assert [each.restored for each in task.progress if each.is_done] == [3]


def test_a_replica_that_has_missed_deletions_alone_is_not_used_when_they_are_gone(tmp_path: Path) -> None:
    with running([TABLE], tmp_path) as task:
        settings = {"cleanup.policy": "compact", "delete.retention.ms": "0", "min.cleanable.dirty.ratio": "0"}
        task.log.alter_config("app-s-changelog", settings)
        for key in "abc":
            task.view().put(key, "1", 5)
        task.commit()
        for key in "ab":
            task.view().put(key, None)
        task.write_log()
        task.log.compact("app-s-changelog", 0, unix_ms() + 1_000)
        task.crash()
        assert [key for key, _ in task.view().all()] == ["c"]


@pytest.mark.parametrize(
    ("boot", "wall_ms", "away_ms"),
    [
        ("this one", 60_000, 5_000),  # the wall clock was set: the clock since the machine's start counts
        ("this one", -60_000, 5_000),
        ("another", 60_000, 60_000),
        ("another", -60_000, None),  # set back: nobody knows
        ("", 60_000, 60_000),
    ],
)
def test_the_absence_of_a_replica_is_measured_by_a_clock_that_nobody_sets(
    boot: str, wall_ms: int, away_ms: int | None
) -> None:
    noted = TaskPosition.of(TaskPosition({}).note())
    id_ = boot_id() if boot == "this one" else boot
    position = replace(noted, noted_ms=unix_ms() - wall_ms, boot=(id_, since_boot_ms() - 5_000))
    found = position.away_ms()
    assert found == away_ms if away_ms is None or found is None else 0 <= found - away_ms < 4_000


def test_progress_is_that_of_a_restore_listener(tmp_path: Path) -> None:
    with running([TABLE], tmp_path) as task:
        task.view().put("a", "1", 5)
        task.commit()
        task.lose()
        first, last = task.progress[0], task.progress[-1]
        assert (first.store, first.topic, first.partition) == ("s", "app-s-changelog", 0)
        assert [(each.offset, each.end, each.restored) for each in (first, last)] == [(0, 1, 0), (1, 1, 1)]


def test_changes_must_be_written_before_they_are_committed(directory: Path | None) -> None:
    with running([TABLE], directory) as task:
        task.view().put("a", "1", 5)
        with pytest.raises(InvalidStateError, match="in no changelog yet"):
            task.replica.commit({}, {})
        task.replica.discard()


def test_micro_batches_write_the_same_bytes(tmp_path: Path) -> None:
    with running(SPECS, None) as task:
        store = TaskStore(
            StatePlace(str(tmp_path / "checkpoint"), tmp_path / "replicas", durable=False),
            StateOwner("app"),
            "0_0",
            SPECS,
        )
        with store:
            for batch in range(30):
                state = store.begin(batch)
                now = batch * 20_000
                for spec in SPECS:
                    for each in (state, task.replica.state):
                        each.meta["stream_time"] = now
                        view = open_view(spec, each.map(spec.name), each.meta)
                        write(spec, view, random.Random(f"{batch} {spec.name}"), now)
                puts = records_of_puts(task.app.changelogs, ((spec.name, state.puts(spec.name)) for spec in SPECS))
                segment = store.publish(batch, {}, {"in": [batch, batch + 1]})
                changes = ((name, rows) for name in segment.stores for rows in segment.change_batches(name))
                theirs = records_of_changes(task.app.changelog_formats, task.app.changelogs, changes, segment.head.meta)
                ours = task.replica.changes()
                assert {topic: rows for topic, _, rows in ours[:-1]} == dict([*puts, *theirs])
                task.replica.commit({}, {})
