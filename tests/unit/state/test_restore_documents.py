"""Restores from segments note how far they have come, while they last."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_snapshots import SPECS, expected, run

from penstock.base.clock import unix_ms
from penstock.state.restores import restore_progress as documents
from penstock.state.restores.restore_progress import Restore, SegmentRestoreNote, forget_restores, read_restores
from penstock.state.snapshots import SnapshotPolicy
from penstock.state.task_store import StateOwner, StatePlace, TaskStore

Opens = Callable[..., TaskStore]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "c")


@pytest.fixture
def opens(tmp_path: Path, place: str) -> Iterator[Opens]:
    stores: list[TaskStore] = []

    def opener(replica: str, **options: Any) -> TaskStore:
        at = StatePlace(place, tmp_path / replica, durable=False)
        stores.append(TaskStore(at, StateOwner("app"), "0_0", SPECS, **options))
        return stores[-1]

    yield opener
    for store in stores:
        store.close()


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch, place: str) -> list[SegmentRestoreNote]:
    """What a console would have read after each note; there is one for each piece."""
    monkeypatch.setattr(documents, "_EVERY_S", 0.0)
    write, found = documents.replace_document, list[SegmentRestoreNote]()

    def noted(location: str, name: str, text: str) -> None:
        write(location, name, text)
        found.extend(read_restores(place))

    monkeypatch.setattr(documents, "replace_document", noted)
    return found


@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_a_lost_replica_shows_how_far_it_has_come_and_forgets_it_at_the_end(
    opens: Opens, place: str, notes: list[SegmentRestoreNote], part_bytes: int
) -> None:
    policy = SnapshotPolicy(every=20, share=0, part_bytes=part_bytes)
    run(opens("first", policy=policy), range(50))
    notes.clear()
    state = opens("second", policy=policy).begin(50)
    assert dict(state.map("s").scan()) == expected(49)
    shares = [Restore.of_segments(each).share for each in notes]
    assert len(shares) > 10
    assert shares == sorted(shares)
    assert shares[0] < 0.5
    assert shares[-1] == 1.0
    assert {each.task for each in notes} == {"0_0"}
    assert set(notes[-1].rows) == {"s", "t"}
    assert notes[-1].rows["s"] >= len(expected(49))
    rows = [sum(each.rows.values()) for each in notes]
    assert rows == sorted(rows)
    assert read_restores(place) == []


def test_a_restore_that_is_over_soon_writes_nothing(opens: Opens, place: str) -> None:
    run(opens("first"), range(5))
    opens("second").begin(5)
    assert not (Path(place) / "console").exists()


def test_notes_of_dead_workers_and_what_is_no_note_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "console" / "restores"
    folder.mkdir(parents=True)
    facts = {"host": "h", "rows": {"s": 3}, "done_bytes": 10, "total_bytes": 40, "seconds": 2.0}
    (folder / "0_1.json").write_text(json.dumps({"task": "0_1", "at_ms": unix_ms(), **facts}))
    (folder / "0_2.json").write_text(json.dumps({"task": "0_2", "at_ms": unix_ms() - 61_000, **facts}))
    (folder / "0_3.json").write_text("[1")
    (folder / "0_4.json").write_text('{"more": 1}')
    (found,) = map(Restore.of_segments, read_restores(str(tmp_path)))
    assert (found.stores, found.partition, found.share, found.per_second, found.remaining_seconds) == (
        ("s",), 1, 0.25, 1.5, 6.0,
    )  # fmt: skip
    forget_restores(str(tmp_path))
    assert list(folder.iterdir()) == []
