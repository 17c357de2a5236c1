"""Committed offsets that have gone back behind what a task's state, or the driver's note, stands for."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Materialized, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.application.planning import PlannedApp
from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.hosting.epoch_positions import KnownPositions, restore_positions
from penstock.engines.threads.hosting.thread_state import ThreadState
from penstock.errors import CheckpointMismatchError
from penstock.log.base import Lease, OffsetAndMetadata, TopicPartition
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.groups.group_admin import GroupAdmin
from penstock.log.groups.offset_regressions import RESET_NOTE, KnownOffset, epoch_note, gone_back
from penstock.log.groups.reset_targets import Target
from penstock.log.open import open_log
from penstock.state.checkpoint import read_document
from penstock.state.lmdb_replicas.lmdb_replica import OWNER_LOCK
from penstock.topology.plan.plan import plan_of
from threads import append, new_thread, records_of, run_to_end, thread_app

SERDES = {"default.key.serde": "string", "default.value.serde": "string", "statestore.cache.max.bytes": 0}
LINES = TopicPartition("lines", 0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as opened:
        opened.create_topic("lines")
        opened.create_topic("counts")
        yield opened


def topology() -> Any:
    builder = StreamsBuilder()
    builder.stream("lines").group_by_key().count(Materialized("count")).map_values(str).to_stream().to("counts")
    return builder.build(SERDES)


def app_of(log: EmbeddedLog, root: Path, **config: Any) -> ThreadApp:
    return thread_app(topology(), SERDES | config, log, str(root / "replicas"))


def ran(log: EmbeddedLog, root: Path, records: int = 5) -> ThreadApp:
    """An application that has counted so many records."""
    app = app_of(log, root)
    append(log, "lines", [("k", "x", n) for n in range(records)])
    run_to_end(app, log)
    return app


def lease_of(log: EmbeddedLog, epoch: int) -> Lease:
    """The application's lease, of this epoch."""
    lease = log.lease("app") or log.acquire_lease("app", "here")
    while lease.epoch < epoch:
        lease = log.acquire_lease("app", "here", replacing=lease)
    return lease


def ran_twice(log: EmbeddedLog, root: Path) -> tuple[ThreadApp, OffsetAndMetadata]:
    """An application that has counted five records in two runs, and the commit of the first one."""
    app = ran(log, root, 2)
    before = log.group_offsets("app")[LINES]
    ran(log, root, 3)
    return app, before


def lose_commits(log: EmbeddedLog, before: OffsetAndMetadata) -> None:
    """Lose what was committed since, as a coordinator may."""
    log.commit_offsets("app", {LINES: before.offset}, before.metadata)


def counts(log: EmbeddedLog) -> list[int]:
    return [int(value or 0) for _, value, _ in records_of(log, "counts")]


def test_offsets_that_another_client_moves_back_are_meant_so(log: EmbeddedLog, tmp_path: Path) -> None:
    """As in Kafka Streams: its users move a stopped application with kafka-consumer-groups --reset-offsets."""
    app = ran(log, tmp_path)
    for metadata in ("", "someone else"):
        log.commit_offsets("app", {LINES: 3}, metadata)
        run_to_end(app, log)
        assert log.committed_offsets("app")[LINES] == 5
    run_to_end(app, log)
    assert counts(log) == [1, 2, 3, 4, 5, 6, 7, 8, 9]  # two records twice more, on the state as it was


def test_commits_that_a_broker_has_lost_are_refused(log: EmbeddedLog, tmp_path: Path) -> None:
    app, before = ran_twice(log, tmp_path)
    lose_commits(log, before)
    with pytest.raises(CheckpointMismatchError, match="lines-0 is at 2, but the state of task 0_0 is at 5") as caught:
        new_thread(app, log).start()
    assert "penstock.data.loss=continue" in str(caught.value)
    assert log.committed_offsets("app")[LINES] == 2  # nothing has been done


def test_offsets_that_are_gone_are_refused_too(log: EmbeddedLog, tmp_path: Path) -> None:
    app = ran(log, tmp_path)
    log.delete_offsets("app", [LINES])
    with pytest.raises(CheckpointMismatchError, match="lines-0 is at 0"):
        new_thread(app, log).start()


def test_with_data_loss_it_goes_on_from_the_newer_offset_and_commits_it(
    log: EmbeddedLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, before = ran_twice(log, tmp_path)
    goes_on = app_of(log, tmp_path, **{"penstock.data.loss": "continue"})
    for _ in range(2):
        lose_commits(log, before)
        run_to_end(goes_on, log)
        assert log.committed_offsets("app")[LINES] == log.end_offset("lines", 0)
    assert "have gone back: lines-0 is at 2, but the state of task 0_0 is at 5; it continues from there" in caplog.text
    append(log, "lines", [("k", "x", 9)])
    run_to_end(goes_on, log)
    assert counts(log) == [1, 2, 3, 4, 5, 6]


def test_a_replica_that_another_process_holds_says_how_far_it_is(log: EmbeddedLog, tmp_path: Path) -> None:
    """As of a thread that was fenced while its process is paused: who has its task next begins with an empty replica."""
    app, before = ran_twice(log, tmp_path)
    lose_commits(log, before)
    (slot,) = (tmp_path / "replicas").glob("continuous-0_0-*/slot-0")
    with (slot / OWNER_LOCK).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CheckpointMismatchError, match="lines-0 is at 2, but the state of task 0_0 is at 5"):
            new_thread(app, log).start()
        run_to_end(app_of(log, tmp_path, **{"penstock.data.loss": "continue"}), log)
    assert log.committed_offsets("app")[LINES] == log.end_offset("lines", 0)
    assert counts(log) == [1, 2, 3, 4, 5]


def test_a_reset_of_our_own_is_meant_so(log: EmbeddedLog, tmp_path: Path) -> None:
    app = ran(log, tmp_path)
    admin = GroupAdmin(log)
    admin.reset("app", admin.plan_reset("app", Target.offset(3)))
    assert log.group_offsets("app")[LINES] == OffsetAndMetadata(3, RESET_NOTE)
    run_to_end(app, log)
    assert counts(log) == [1, 2, 3, 4, 5, 6, 7]  # two records once more, on the state as it was
    run_to_end(app, log)
    assert len(counts(log)) == 7


def test_a_changelog_that_was_made_again_proves_nothing(log: EmbeddedLog, tmp_path: Path) -> None:
    """As after Kafka's reset tool, which knows nothing of replicas."""
    ran(log, tmp_path)
    log.delete_topic("app-count-changelog")
    log.commit_offsets("app", {LINES: 0})
    run_to_end(app_of(log, tmp_path), log)
    assert counts(log) == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]


PLACE = TopicPartition("in", 0)
FIRSTS, ENDS = {PLACE: 0}, {PLACE: 300}


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (OffsetAndMetadata(149, ""), None),
        (OffsetAndMetadata(149, "of another program, epoch 2"), None),
        (OffsetAndMetadata(149, epoch_note("stream-thread thread-0", 3)), (149, 200)),
        (OffsetAndMetadata(149, epoch_note("stream-driver", 2)), (149, 200)),
        (OffsetAndMetadata(149, epoch_note("stream-thread thread-0", 4)), None),  # a later epoch has begun there
        (OffsetAndMetadata(149, epoch_note("stream-driver", 4)), None),
        (OffsetAndMetadata(149, RESET_NOTE), None),
        (OffsetAndMetadata(149, "penstock batch 7"), None),
        (OffsetAndMetadata(200, ""), None),
        (OffsetAndMetadata(250, ""), None),
        (None, (0, 200)),
    ],
)
def test_what_counts_as_gone_back(at: OffsetAndMetadata | None, expected: tuple[int, int] | None) -> None:
    committed = {} if at is None else {PLACE: at}
    found = gone_back({PLACE: KnownOffset(200, 3)}, committed, FIRSTS, ENDS)
    assert found == ({} if expected is None else {PLACE: expected})


def test_topics_that_were_cut_off_or_retention_are_another_matter() -> None:
    known, at = {PLACE: KnownOffset(200, 3)}, {PLACE: OffsetAndMetadata(149, epoch_note("stream-driver", 3))}
    assert gone_back(known, at, FIRSTS, {PLACE: 150}) == {}
    assert gone_back(known, at, {PLACE: 220}, ENDS) == {}


# The driver's note


def planned(log: EmbeddedLog, root: Path, **config: Any) -> PlannedApp:
    """A stateless application: nothing but the note knows how far it has come."""
    builder = StreamsBuilder()
    builder.stream("lines").to("counts")
    settings = StreamsConfig(
        {"application.id": "app", "bootstrap.servers": log.url, "state.dir": str(root / "state"), **SERDES, **config}
    )
    built = builder.build(settings)
    plan = plan_of(built, "app", {topic.name: topic.partitions for topic in log.topics()})
    return PlannedApp(built, settings, plan, log)


def note_of(root: Path, committed: int, epoch: int = 3, life: str = "life") -> KnownPositions:
    known = KnownPositions()
    known.open(str(root / "checkpoint"), life)
    state = ThreadState("host", 1, 0.0, report={"committed": {"lines-0": committed, "with-dashes-1": 4}})
    known.note(epoch, {"thread-0": state})
    known.write()
    return known


def test_the_note_survives_the_driver(tmp_path: Path) -> None:
    note_of(tmp_path, 5)
    again = KnownPositions()
    again.open(str(tmp_path / "checkpoint"), "life")
    assert again.offsets == {LINES: KnownOffset(5, 3), TopicPartition("with-dashes", 1): KnownOffset(4, 3)}
    reset = KnownPositions()
    reset.open(str(tmp_path / "checkpoint"), "another life")
    assert reset.offsets == {}


def test_a_note_keeps_the_largest_of_an_epoch_and_takes_a_later_one(tmp_path: Path) -> None:
    known = note_of(tmp_path, 5)
    late = ThreadState("host", 2, 0.0, report={"committed": {"lines-0": 3}})
    known.note(3, {"thread-1": late})  # of a thread that had the task before
    assert known.offsets[LINES] == KnownOffset(5, 3)
    known.note(4, {"thread-1": late})
    assert known.offsets[LINES] == KnownOffset(3, 4)


def test_a_note_that_is_damaged_does_not_stop_a_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    note_of(tmp_path, 5)
    (tmp_path / "checkpoint" / "positions.json").write_text('{"life": "life", "offsets": [1]}')
    known = KnownPositions()
    known.open(str(tmp_path / "checkpoint"), "life")
    assert known.offsets == {}
    assert "cannot be read" in caplog.text


def test_the_driver_refuses_offsets_that_are_behind_its_note(log: EmbeddedLog, tmp_path: Path) -> None:
    append(log, "lines", [("k", "x", n) for n in range(5)])
    log.commit_offsets("app", {LINES: 2}, epoch_note("stream-thread thread-0", 3))
    known = note_of(tmp_path, 5).offsets
    with pytest.raises(CheckpointMismatchError, match="lines-0 is at 2, but the application is at 5"):
        restore_positions(planned(log, tmp_path), known, (), lease_of(log, 4))
    restore_positions(planned(log, tmp_path), known, ("lines",), lease_of(log, 4))  # a topic that was made again
    goes_on = planned(log, tmp_path, **{"penstock.data.loss": "continue"})
    restore_positions(goes_on, known, (), lease_of(log, 4))
    assert log.group_offsets("app")[LINES] == OffsetAndMetadata(5, epoch_note("stream-driver", 4))
    assert read_document(str(tmp_path / "checkpoint"), "positions.json") is not None


@pytest.mark.parametrize(("noted", "moved_to"), [(5, 2), (1, 4)])
def test_the_driver_says_that_it_continues_where_another_client_has_set_the_offsets(
    log: EmbeddedLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, noted: int, moved_to: int
) -> None:
    append(log, "lines", [("k", "x", n) for n in range(5)])
    log.commit_offsets("app", {LINES: moved_to})
    restore_positions(planned(log, tmp_path), note_of(tmp_path, noted).offsets, (), lease_of(log, 4))
    assert log.group_offsets("app")[LINES] == OffsetAndMetadata(moved_to, "")
    said = f"app continues where its group's offsets were set: lines-0 at {moved_to}; its state is as it was"
    assert said in caplog.text


@pytest.mark.parametrize("note", [epoch_note("stream-thread thread-0", 3), "penstock batch 7"])
def test_the_driver_says_nothing_of_offsets_that_the_application_has_committed(
    log: EmbeddedLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, note: str
) -> None:
    append(log, "lines", [("k", "x", n) for n in range(5)])
    log.commit_offsets("app", {LINES: 4}, note)
    restore_positions(planned(log, tmp_path), note_of(tmp_path, 1).offsets, (), lease_of(log, 4))
    assert not caplog.records
