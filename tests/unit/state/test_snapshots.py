"""Snapshots and merged deltas: when they are made, what they hold, how they come back."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.state.segments.chain import follow_chain
from penstock.state.segments.segment import SegmentName
from penstock.state.segments.storage import SegmentStorage, open_storage
from penstock.state.snapshots import SnapshotPolicy
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.topology.stores import StoreSpec

SPECS = [StoreSpec("s", "key_value", None, None), StoreSpec("t", "key_value", None, None)]
NEVER = 1e9
Opener = Callable[..., TaskStore]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "c")


@pytest.fixture
def opened(tmp_path: Path, place: str) -> Iterator[Opener]:
    stores: list[TaskStore] = []

    def opener(replica: str, checkpoint: str = place, **options: Any) -> TaskStore:
        at = StatePlace(checkpoint, tmp_path / replica, durable=False)
        store = TaskStore(at, StateOwner("app"), "0_0", SPECS, **options)
        stores.append(store)
        return store

    yield opener
    for store in stores:
        store.close()


def run(store: TaskStore, batches: range) -> None:
    """Each batch writes a key of its own, one that all write, and deletes that of five batches before."""
    for batch in batches:
        state = store.begin(batch)
        for name in ("s", "t"):
            state.map(name).put(b"%03d" % batch, b"%d" % batch)
            state.map(name).put(b"all", b"%d" % batch)
            if batch >= 5:
                state.map(name).put(b"%03d" % (batch - 5), None)
        state.meta["batch"] = batch
        store.publish(batch, {})
        settle()


def settle() -> None:
    for thread in threading.enumerate():
        if thread.name == "penstock-snapshot":
            thread.join()


def expected(batch: int) -> dict[bytes, bytes]:
    return {b"%03d" % n: b"%d" % n for n in range(max(0, batch - 4), batch + 1)} | {b"all": b"%d" % batch}


def check(store: TaskStore, batch: int) -> None:
    state = store.begin(batch + 1)
    assert [dict(state.map(name).scan()) for name in ("s", "t")] == [expected(batch)] * 2
    assert state.meta == {"batch": batch}


def names(storage: SegmentStorage, kind: str) -> list[SegmentName]:
    return [name for name in storage.names() if name.kind == kind]


@pytest.fixture(params=["directory", "objects"])
def anywhere(request: pytest.FixtureRequest, place: str, tmp_path: Path) -> str:
    return place if request.param == "directory" else f"memory://{tmp_path.name}"


def test_names() -> None:
    merged = SegmentName(9, "merged", 3)
    assert str(merged) == "3-9.merged"
    for name in (merged, SegmentName(7, "delta"), SegmentName(7, "snapshot")):
        assert SegmentName.parse(str(name)) == name
    for text in ("3-9.delta", "9.merged", "parts", "-3.merged", "x-3.merged", ".lock"):
        assert SegmentName.parse(text) is None
    assert SegmentName(3, "delta") in merged
    assert SegmentName(7, "merged", 4) in merged
    assert SegmentName(10, "delta") not in merged
    assert SegmentName(5, "snapshot") not in merged


def test_small_deltas_of_a_large_state_are_merged(opened: Opener, anywhere: str) -> None:
    store = opened("a", anywhere, policy=SnapshotPolicy(every=4, share=NEVER))
    run(store, range(40))
    storage = open_storage(anywhere, "0_0")
    assert names(storage, "snapshot") == [SegmentName(3, "snapshot")]
    assert len(names(storage, "delta")) <= 12
    assert 1 <= len(names(storage, "merged")) <= 6
    assert follow_chain(storage).head == 39
    assert follow_chain(storage).gap is None
    check(opened("new", anywhere), 39)


def test_a_replica_inside_a_merged_range_goes_on(opened: Opener, place: str) -> None:
    old = opened("old")
    store = opened("a", policy=SnapshotPolicy(every=4, share=NEVER))
    run(store, range(7))
    old.begin(7)
    run(store, range(7, 40))
    merged = names(open_storage(place, "0_0"), "merged")
    assert any(name.first <= 6 < name.batch for name in merged)
    assert not (Path(place) / "state/0_0/7.delta").exists()
    check(old, 39)


def test_a_delta_that_came_too_late_is_not_merged(opened: Opener) -> None:
    """Its batch was committed as an empty one: nobody has built on it."""
    store, late = opened("a", policy=SnapshotPolicy(every=4, share=NEVER)), opened("late")
    run(store, range(9))
    late.begin(9).map("s").put(b"late", b"!")
    store.begin(9)
    assert not store.publish(9, {}).stored
    store.begin(10)
    late.publish(9, {})
    run(store, range(10, 30))
    state = opened("new").begin(30)
    assert state.map("s").get(b"late") is None
    assert state.map("s").get(b"all") == b"29"


def test_a_snapshot_is_due_by_a_share_of_the_state(opened: Opener, place: str) -> None:
    store = opened("a", policy=SnapshotPolicy(every=2, share=0.5))
    state = store.begin(0)
    state.map("s").put_many([b"%06d" % n for n in range(20_000)], [b"%d" % (n * n) for n in range(20_000)])
    store.publish(0, {})
    run(store, range(1, 30))
    storage = open_storage(place, "0_0")
    (only,) = names(storage, "snapshot")
    sizes = storage.sizes()
    assert only.batch <= 2
    for batch in range(30, 36):
        state = store.begin(batch)
        state.map("s").put_many([b"%06d" % n for n in range(5_000)], [b"%d" % (n * batch) for n in range(5_000)])
        store.publish(batch, {})
        settle()
    store.begin(36)
    settle()
    assert len(names(storage, "snapshot")) == 2
    assert sizes[only] > 0


def test_a_large_snapshot_is_written_in_parts(opened: Opener, anywhere: str) -> None:
    store = opened("a", anywhere, policy=SnapshotPolicy(every=3, share=0, part_bytes=1))
    run(store, range(20))
    storage = open_storage(anywhere, "0_0")
    older, newer = names(storage, "snapshot")
    assert storage.sizes()[newer] > len(storage.read(newer) or b"")
    check(opened("new", anywhere), 19)
    assert follow_chain(storage).gap is None
    storage.delete(older)
    storage.put_part(SegmentName(2, "snapshot"), "of-a-killed-process", [b"x"])
    storage.remove_parts(before=3)
    assert storage.read_part(SegmentName(2, "snapshot"), "of-a-killed-process") is None


def test_a_damaged_part_is_found_and_the_snapshot_passed_over(opened: Opener, place: str) -> None:
    store = opened("a", policy=SnapshotPolicy(every=3, share=0, part_bytes=1))
    run(store, range(20))
    storage = open_storage(place, "0_0")
    newest = names(storage, "snapshot")[-1]
    part = min((Path(place) / "state/0_0/parts" / str(newest.batch)).iterdir())
    part.write_bytes(part.read_bytes()[:-1])
    check(opened("new"), 19)
    part.unlink()
    check(opened("newer"), 19)
    storage.delete(newest)
    assert not part.parent.exists()


def test_what_killed_workers_of_earlier_versions_left_goes(opened: Opener, tmp_path: Path) -> None:
    opened("a").close()
    (slot,) = (tmp_path / "a").rglob("slot-0")
    (slot / ".section.123.abcd").write_bytes(b"x")
    opened("a")
    assert not list(slot.glob(".section.*"))


def test_where_addresses_are_limited_less_is_mapped(tmp_path: Path) -> None:
    """The file is no longer than what is in it, whatever is mapped."""
    code = """
import resource, sys
from pathlib import Path
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
replica = LmdbReplica(Path(sys.argv[1]), "x", ["s"])
print((replica.directory / "data.mdb").stat().st_size)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, timeout=300)
    assert int(done.stdout) < 1 << 20
