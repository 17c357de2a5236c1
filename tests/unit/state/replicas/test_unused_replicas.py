"""A machine that has lost a task gives its replica's space back; one that still has it, or may need it, does not."""

from __future__ import annotations

import os

import pytest

from penstock.state.lmdb_replicas.folders import remove_unused
from penstock.state.lmdb_replicas.lmdb_replica import replica_place
from penstock.state.snapshots import SnapshotPolicy
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.topology.stores import StoreSpec

SPECS = [StoreSpec("s", "key_value", None, None)]
HOUR = 3_600


@pytest.fixture
def machine(tmp_path):
    """Runs batches of the task on a machine of this name, with a snapshot every other batch if it is to."""

    def run(name, batches, *, snapshots=True, application="app"):
        policy = SnapshotPolicy(every=2 if snapshots else 1_000, share=0)
        with TaskStore(
            StatePlace(str(tmp_path / "c"), tmp_path / name), StateOwner(application), "0_0", SPECS, policy=policy
        ) as store:
            for batch in batches:
                store.begin(batch).map("s").put(b"%d" % batch, b"v")
                store.publish(batch, {})
                store._snapshots.wait()
            found = dict(store.begin(batches[-1] + 1).map("s").scan())
        return sorted(map(int, found))

    return run


def data(tmp_path, name):
    return replica_place(tmp_path / name, "app", str(tmp_path / "c"), "0_0")[1] / "slot-0" / "data.mdb"


def removed(tmp_path, name, *, application="app", hours_old=2):
    file = data(tmp_path, name)
    then = file.stat().st_mtime - hours_old * HOUR
    os.utime(file, (then, then))
    found = remove_unused(tmp_path / name, application, str(tmp_path / "c"), HOUR)
    assert found == ([] if file.exists() else [file.parent])
    return bool(found)


def test_the_replica_of_a_task_that_lives_elsewhere_goes_and_comes_back_from_a_snapshot(tmp_path, machine):
    machine("one", range(3))
    machine("two", range(3, 12))
    assert not removed(tmp_path, "two"), "the task is here, however long it has rested"
    assert not removed(tmp_path, "one", hours_old=0), "it may come back at once"
    assert not removed(tmp_path, "one", application="other")
    assert removed(tmp_path, "one")
    assert data(tmp_path, "one").with_name("owner.lock").exists()
    assert machine("one", range(12, 14)) == list(range(14))


def test_a_replica_that_deltas_can_bring_on_stays(tmp_path, machine):
    machine("one", range(3), snapshots=False)
    machine("two", range(3, 12), snapshots=False)
    assert not removed(tmp_path, "one")


def test_a_replica_that_somebody_works_on_stays(tmp_path, machine):
    machine("one", range(3))
    machine("two", range(3, 12))
    with TaskStore(StatePlace(str(tmp_path / "c"), tmp_path / "one"), StateOwner("app"), "0_0", SPECS) as store:
        assert not removed(tmp_path, "one")
        store.pause()
        assert not removed(tmp_path, "one"), "this process has it open"
    assert removed(tmp_path, "one")
