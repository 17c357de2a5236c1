"""Segments: who wins, what is recorded, what happens when files are lost or damaged."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import threading

import pyarrow as pa
import pytest

from penstock.errors import (
    CheckpointMismatchError,
    CorruptSegmentError,
    InvalidStateError,
    MissingSegmentError,
    StateError,
)
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica
from penstock.state.lmdb_replicas.other_process import watch_replicas
from penstock.state.maps import ReplicaPosition
from penstock.state.segments import local_storage as storage_module
from penstock.state.segments.segment import SegmentHead, pack, unpack
from penstock.state.snapshots import SnapshotPolicy
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.topology.stores import StoreSpec

SPECS = [StoreSpec("s", "key_value", None, None)]
ROWS = pa.record_batch({"partition": pa.array([0, 1], pa.int32()), "value": pa.array([b"x", None], pa.large_binary())})


@pytest.fixture
def opened(tmp_path):
    stores = []

    def opener(replica="replica", checkpoint=None, application_id="app", **options):
        names = ("map_bytes", "durable"), ("fingerprint", "accepts"), ("policy",)
        kept, whose, rest = ({n: options.pop(n) for n in group if n in options} for group in names)
        assert not options
        place = StatePlace(checkpoint or str(tmp_path / "c"), tmp_path / replica, **{"durable": False, **kept})
        store = TaskStore(place, StateOwner(application_id, **whose), "0_0", SPECS, **rest)
        stores.append(store)
        return store

    yield opener
    for store in stores:
        store.close()


def run(store, batch, key=None, value=None, outputs=None, offsets=None):
    state = store.begin(batch)
    state.map("s").put(key or b"%d" % batch, value or b"v%d" % batch)
    return store.publish(batch, outputs or {}, offsets)


def rows(store, batch):
    return dict(store.begin(batch).map("s").scan())


def delta(tmp_path, batch):
    return tmp_path / "c" / "state" / "0_0" / f"{batch}.delta"


def test_a_segment_records_outputs_offsets_and_numbers(opened):
    store = opened()
    state = store.begin(0)
    state.meta["stream-time"] = 42
    published = store.publish(0, {"out": ROWS, "none": ROWS.slice(0, 0)}, {"in": {"0": [0, 7]}})
    assert published.published_here
    found = opened("elsewhere").find(0)
    assert found is not None
    assert found.outputs == published.outputs == {"out": ROWS}
    assert found.input_offsets == {"in": {"0": [0, 7]}}
    assert found.head == published.head
    assert not found.published_here
    assert opened("third").begin(1).meta == {"stream-time": 42}


def test_a_segment_is_of_what_its_batch_has_read(opened):
    store = opened()
    store.begin(0).map("s").put(b"k", b"v")
    store.publish(0, {}, {"in-0": [0, 7]}, inputs="a")
    for found in (store, opened("elsewhere")):
        assert found.find(0, inputs="a") is not None
        assert found.find(0) is not None
        with pytest.raises(CheckpointMismatchError, match=r"0\.delta says that batch 0 is done, but it has read other"):
            found.find(0, inputs="b", discard_damaged=True)
    late = opened("late")
    late.begin(0).map("s").put(b"k", b"w")
    with pytest.raises(CheckpointMismatchError, match=r"0\.delta says that batch 0 is done"):
        late.publish(0, {}, {"in-0": [0, 9]}, inputs="b")
    store.begin(1).map("s").put(b"k", b"x")
    store.publish(1, {}, {"in-0": [7, 9]})  # as earlier versions have written it
    assert store.find(1, inputs="c") is not None


def test_first_published_wins_and_the_loser_takes_over_its_state(opened):
    first, second = opened(), opened()
    first.begin(0).map("s").put(b"k", b"first")
    second.begin(0).map("s").put(b"k", b"second")
    assert first.publish(0, {"out": ROWS.slice(0, 1)}).published_here
    winner = second.publish(0, {"out": ROWS})
    assert not winner.published_here
    assert winner.outputs == {"out": ROWS.slice(0, 1)}
    assert rows(first, 1) == rows(second, 1) == {b"k": b"first"}


def test_a_retry_starts_from_the_batch_before(opened):
    store = opened()
    run(store, 0)
    store.begin(1).map("s").put(b"0", b"half done")
    assert rows(store, 1) == {b"0": b"v0"}


def test_empty_batches_write_nothing_and_gaps_are_still_found(opened, tmp_path):
    store = opened()
    run(store, 0)
    for batch in (1, 2):
        store.begin(batch)
        assert not store.publish(batch, {}).stored
    run(store, 3)
    run(store, 4)
    assert rows(opened("new"), 5) == {b"0": b"v0", b"3": b"v3", b"4": b"v4"}
    delta(tmp_path, 3).unlink()
    with pytest.raises(MissingSegmentError, match=r"follows .*3\.delta"):
        opened("newer").begin(5)


def test_input_without_effect_is_recorded(opened):
    store = opened()
    store.begin(0)
    assert store.publish(0, {}, {"in": [0, 3]}).stored
    assert store.find(0).input_offsets == {"in": [0, 3]}


def test_a_lost_newest_segment_is_noticed(opened, tmp_path):
    store = opened()
    run(store, 0)
    run(store, 1)
    store.begin(2)
    store.close()
    delta(tmp_path, 1).unlink()
    with pytest.raises(MissingSegmentError, match="replica has it"):
        opened().begin(2)
    with pytest.raises(MissingSegmentError, match="its batch was published"):
        opened("new").begin(2, expected_head=1)


@pytest.mark.parametrize("damage", ["cut", "empty", "flip"])
def test_a_damaged_segment_is_recognised(opened, tmp_path, damage):
    store = opened()
    run(store, 0)
    run(store, 1, outputs={"out": ROWS})
    path = delta(tmp_path, 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes({"cut": path.read_bytes()[:-5], "empty": b"", "flip": bytes(data)}[damage])
    other = opened("new")
    with pytest.raises(CorruptSegmentError, match=r"1\.delta is damaged") as caught:
        other.find(1)
    assert "Hint" in str(caught.value)
    with pytest.raises(CorruptSegmentError):
        other.begin(2)
    assert other.find(1, discard_damaged=True) is None
    assert run(other, 1, value=b"again").published_here
    assert rows(other, 2) == {b"0": b"v0", b"1": b"again"}


def test_a_damaged_segment_in_the_way_of_publishing(opened, tmp_path):
    store = opened()
    store.begin(0).map("s").put(b"k", b"v")
    delta(tmp_path, 0).parent.mkdir(parents=True)
    delta(tmp_path, 0).write_bytes(b"half")
    with pytest.raises(CorruptSegmentError):
        store.publish(0, {})
    assert store.publish(0, {}, discard_damaged=True).published_here


def test_a_deleted_replica_is_rebuilt_even_under_way(opened, tmp_path):
    store = opened()
    run(store, 0)
    run(store, 1)
    shutil.rmtree(tmp_path / "replica")
    assert rows(store, 2) == {b"0": b"v0", b"1": b"v1"}
    run(store, 2)
    assert len(rows(store, 3)) == 3


def test_a_cut_replica_is_rebuilt(opened, tmp_path):
    store = opened()
    for batch in range(3):
        run(store, batch, value=b"x" * 100_000)
    store.begin(3)
    store.close()
    (data,) = (tmp_path / "replica").rglob("data.mdb")
    os.truncate(data, 16_384)
    assert len(rows(opened(), 3)) == 3


def test_a_cut_replica_of_others_is_left_out(tmp_path):
    """A power cut has left a file whose pages are not all there: to read one would end this process."""
    replica = LmdbReplica(tmp_path, "one", ["s"])
    values = [bytes([number]) * 1_000 for number in range(100)]
    keys = [bytes([number]) for number in range(100)]
    replica.apply(["s"], lambda _: [(keys, values)], ReplicaPosition())
    data = replica.directory / "data.mdb"
    replica.close()
    (there,) = watch_replicas(tmp_path, "one", ["s"])
    there.close()
    os.truncate(data, 8_192)  # the two pages that say where the others are
    assert watch_replicas(tmp_path, "one", ["s"]) == []


def test_a_replica_that_is_ahead_or_of_another_chain_is_rebuilt(opened, tmp_path):
    store = opened()
    for batch in range(3):
        run(store, batch)
    store.begin(3)
    assert rows(store, 1) == {b"0": b"v0"}
    store.begin(3)
    store.close()
    shutil.rmtree(tmp_path / "c")
    other = opened("other")
    for batch in range(4):
        run(other, batch, value=b"new")
    assert rows(opened(), 4) == dict.fromkeys((b"0", b"1", b"2", b"3"), b"new")


def test_snapshots_carry_recovery_and_let_old_deltas_go(opened, tmp_path):
    store = opened(policy=SnapshotPolicy(every=3, share=0))
    for batch in range(14):
        run(store, batch)
        for thread in threading.enumerate():  # there is one at a time, and a slow one would put off the next
            if thread.name == "penstock-snapshot":
                thread.join()
    store.close()
    files = [path.name for path in delta(tmp_path, 0).parent.iterdir()]
    snapshots = [int(name.split(".")[0]) for name in files if name.endswith("snapshot")]
    deltas = [int(name.split(".")[0]) for name in files if name.endswith("delta")]
    assert len(snapshots) == 2
    assert sorted(deltas) == list(range(min(snapshots) + 1, 14))
    assert len(rows(opened("new"), 14)) == 14
    newest = tmp_path / "c" / "state" / "0_0" / f"{max(snapshots)}.snapshot"
    newest.write_bytes(newest.read_bytes()[:100])
    assert len(rows(opened("newer"), 14)) == 14


def test_an_old_replica_catches_up(opened):
    old, new = (
        opened("old", policy=SnapshotPolicy(every=3, share=0)),
        opened("new", policy=SnapshotPolicy(every=3, share=0)),
    )
    run(old, 0)
    old.begin(1)
    for batch in range(1, 12):
        run(new, batch)
    assert len(rows(old, 12)) == 12


def test_the_replica_grows(opened):
    store = opened(map_bytes=16 << 20)
    store.begin(0).map("s").put_many([b"%d" % i for i in range(75)], [b"x" * (1 << 20)] * 75)
    store.publish(0, {})
    assert len(store.begin(1).map("s")) == 75


def test_a_second_opener_takes_a_replica_of_its_own(opened, tmp_path):
    first, second = opened(), opened()
    run(first, 0)
    assert rows(second, 1) == {b"0": b"v0"}
    assert {path.parent.name for path in (tmp_path / "replica").rglob("data.mdb")} == {"slot-0", "slot-1"}
    second.close()
    assert {path.parent.name for path in (tmp_path / "replica").rglob("data.mdb")} == {"slot-0"}


def test_a_full_disk_leaves_nothing_and_publishing_can_be_repeated(opened, tmp_path, monkeypatch):
    store = opened(durable=True)
    store.begin(0).map("s").put(b"k", b"v")

    def full(_handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(storage_module.os, "fsync", full)
        with pytest.raises(StateError, match="could not be written") as caught:
            store.publish(0, {})
        assert "free space" in str(caught.value)
    assert list(delta(tmp_path, 0).parent.iterdir()) == []
    assert store.publish(0, {}).published_here


def test_without_hard_links(opened, monkeypatch):
    def refuse(*_paths):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(storage_module.os, "link", refuse)
    first, second = opened(), opened()
    first.begin(0).map("s").put(b"k", b"first")
    second.begin(0).map("s").put(b"k", b"second")
    assert first.publish(0, {}).published_here
    assert not second.publish(0, {}).published_here


def test_other_applications_and_topologies_are_refused(opened):
    run(opened("a", fingerprint="one"), 0)
    with pytest.raises(CheckpointMismatchError, match="'app'"):
        opened("b", application_id="other").begin(1)
    with pytest.raises(CheckpointMismatchError, match="another topology"):
        opened("c", fingerprint="two").begin(1)
    assert rows(opened("d", fingerprint="two", accepts=["one"]), 1) == {b"0": b"v0"}


def test_publishing_needs_a_begun_batch(opened):
    with pytest.raises(InvalidStateError, match="has not begun"):
        opened().publish(0, {})


def test_read_committed_gives_no_half_batch(opened):
    store, reader = opened(), opened()
    run(store, 0)
    store.begin(1).map("s").put(b"0", b"half")
    assert dict(reader.read_committed(0).map("s").scan()) == {b"0": b"v0"}


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_other_places_for_segments(opened, tmp_path, scheme):
    url = f"memory://{tmp_path.name}" if scheme == "memory" else f"file://{tmp_path}/with%20blank"
    first, second = opened("a", url, policy=SnapshotPolicy(every=2, share=0)), opened("b", url)
    first.begin(0).map("s").put(b"0", b"v0")
    second.begin(0).map("s").put(b"0", b"late")
    assert first.publish(0, {"out": ROWS}).published_here
    assert second.publish(0, {}).outputs == {"out": ROWS}
    for batch in range(1, 9):
        run(first, batch)
    first.begin(9)
    assert first.find(99) is None
    first.close()
    assert len(rows(opened("c", url), 9)) == 9
    assert (tmp_path / "with blank").exists() == (scheme == "file")


def test_an_object_store_on_disk(tmp_path):
    import obstore.store

    from penstock.state.segments.object_storage import ObjectStorage
    from penstock.state.segments.segment import SegmentName

    storage = ObjectStorage(obstore.store.LocalStore(str(tmp_path)), "state/0_0", "x://")
    name = SegmentName(3, "delta")
    assert storage.read(name) is None
    assert storage.create(name, [b"a", b"b"])
    assert not storage.create(name, [b"c"])
    assert bytes(storage.read(name)) == b"ab"
    assert storage.exists(name)
    assert storage.names() == [name]
    storage.delete(name)
    storage.delete(name)
    assert not storage.exists(name)


def test_an_unknown_scheme_is_refused(opened):
    with pytest.raises(StateError, match="no storage for ftp"):
        opened(checkpoint="ftp://host/x")


def test_a_segment_of_a_newer_format_is_refused_and_kept(opened, tmp_path):
    store = opened()
    run(store, 0)
    path = delta(tmp_path, 0)
    newer = path.read_bytes().replace(b'"version": 1', b'"version": 2')
    path.write_bytes(newer)  # its checksum would be made in another way, too
    other = opened("elsewhere")
    for use in (lambda: other.find(0, discard_damaged=True), lambda: other.begin(1)):
        with pytest.raises(CheckpointMismatchError, match="has format version 2, this Penstock reads version 1"):
            use()
    assert path.read_bytes() == newer


def test_what_a_later_version_adds_to_a_header_is_passed_over():
    head = SegmentHead("delta", "app", "", "0_0", 0, -1, "")
    parts, _ = pack(head, {}, {})
    header = json.loads(parts[0][12:])
    text = json.dumps({**header, "added": 1}).encode()
    body = b"PENSTSEG" + len(text).to_bytes(4, "big") + text
    data = body + hashlib.blake2b(body, digest_size=16).digest()
    assert unpack(data, "here").head == head
