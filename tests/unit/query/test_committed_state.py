"""Queries see what is committed, all of it, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.engines.committed_state import task_state as tasks
from penstock.errors import StateError
from penstock.query import QueryableStoreTypes, StoreQueryParameters
from penstock.query.stores import open_store
from penstock.serde.windowed import Window, Windowed

from .conftest import Checkpoint, T

HERE = Path(__file__).parent


def opened(state, name):
    return open_store(state, StoreQueryParameters(name))


def put(key, value):
    return lambda task, store: store("plain").put(f"{key}{task}", value)


def test_nothing_before_the_first_commit(checkpoint, state):
    checkpoint.run(0, 0, lambda store: store("plain").put("a", "1"))
    store = opened(state, "plain")
    assert store.get("a") is None
    assert list(store.all()) == []
    assert store.approximate_num_entries() == 0


def test_a_batch_is_seen_when_spark_has_committed_it_and_not_before(checkpoint, state):
    checkpoint.batch(put("a", "1"))
    store = opened(state, "plain")
    assert list(store.all()) == [("a0", "1"), ("a1", "1")]
    checkpoint.run(0, 1, lambda view: view("plain").put("a0", "2"))
    assert store.get("a0") == "1"  # published, not committed
    checkpoint.run(1, 1, lambda view: view("plain").put("a1", None))
    assert store.get("a1") == "1"
    checkpoint.commit(1)
    assert list(store.all()) == [("a0", "2")]
    assert list(store.reverse_all()) == [("a0", "2")]


def test_a_key_is_found_in_whatever_partition_it_is(checkpoint, state):
    checkpoint.batch(lambda task, store: store("plain").put("same", "x") if task == 1 else None)
    checkpoint.batch(lambda task, store: store("plain").put("other", "y") if task == 0 else None)
    store = opened(state, "plain")
    assert (store.get("same"), store.get("other"), store.get("none")) == ("x", "y", None)
    assert store.get_many(["none", "other", "same"]) == [None, "y", "x"]
    one = open_store(state, StoreQueryParameters("plain", partition=0))
    assert (one.get("same"), one.get("other")) == (None, "y")


def test_ranges_go_over_all_partitions_in_one_order(checkpoint, state):
    checkpoint.batch(lambda task, store: [store("plain").put(f"{n:02}", "v") for n in range(task, 20, 2)])
    checkpoint.batch(lambda task, store: store("plain").put("07", None))
    store = opened(state, "plain")
    keys = [f"{n:02}" for n in range(20) if n != 7]
    assert [k for k, _ in store.all()] == keys
    assert [k for k, _ in store.reverse_range("05", "10")] == ["10", "09", "08", "06", "05"]
    assert [k for k, _ in store.prefix_scan("1")] == keys[9:]
    assert store.approximate_num_entries() == 19


def test_many_batches_between_two_queries(checkpoint, state):
    store = opened(state, "plain")
    for batch in range(90):
        checkpoint.batch(put("a", str(batch)))
        if batch in (0, 5, 50):
            assert store.get("a0") == str(batch)
    assert list(store.all()) == [("a0", "89"), ("a1", "89")]


def test_segments_that_snapshots_have_replaced(checkpoint, state):
    checkpoint.snapshot_every = 3
    store = opened(state, "plain")
    checkpoint.batch(put("first", "1"))
    assert store.get("first0") == "1"
    for batch in range(60):
        checkpoint.batch(put("a", str(batch)))
    for worker in checkpoint.workers.values():
        worker._snapshots.wait()
    assert list(store.all()) == [("a0", "59"), ("a1", "59"), ("first0", "1"), ("first1", "1")]
    fresh = checkpoint.state(own_root=checkpoint.root / "another")
    assert list(opened(fresh, "plain").all()) == list(store.all())
    fresh.close()


def test_an_iterator_stays_at_its_batch(checkpoint, state):
    checkpoint.batch(lambda task, store: [store("plain").put(f"{n}", "old") for n in range(5)])
    entries = opened(state, "plain").all()
    assert next(entries)[1] == "old"
    for _ in range(40):
        checkpoint.batch(lambda task, store: [store("plain").put(f"{n}", "new") for n in range(5)])
        assert opened(state, "plain").get("0") == "new"
    assert {value for _, value in entries} == {"old"}


def test_an_empty_batch_and_a_task_without_input(checkpoint, state):
    checkpoint.batch(lambda task, store: store("plain").put("a", "1") if task == 0 else None)
    checkpoint.commit(1)
    checkpoint.commit(2)
    assert opened(state, "plain").get("a") == "1"
    with state.reading("plain") as reading:
        assert reading.batch == 2
        assert reading.position.to_json() == {"events": {"0": 29, "1": 29}}


def test_a_checkpoint_that_was_deleted_and_made_anew(checkpoint, state):
    for _ in range(3):
        checkpoint.batch(put("a", "before"))
    assert opened(state, "plain").get("a0") == "before"
    checkpoint.close()
    checkpoint.workers.clear()
    for folder in ("state", "spark"):
        shutil.rmtree(Path(checkpoint.location) / folder)
    shutil.rmtree(checkpoint.root / "workers")
    checkpoint.committed = -1
    checkpoint.batch(put("b", "after"))
    assert list(opened(state, "plain").all()) == [("b0", "after"), ("b1", "after")]


def test_a_segment_that_came_after_its_batch_was_committed_as_empty(checkpoint, state):
    checkpoint.batch(put("a", "1"))
    checkpoint.commit(1)
    late = checkpoint.worker(0)
    assert opened(state, "plain").get("a0") == "1"
    begun = late.begin(1)
    begun.map("plain").put(b"zombie", b"!")
    late.publish(1, {})
    late.close()
    shutil.rmtree(checkpoint.root / "workers" / late._replica.directory.parent.name)
    before = Path(checkpoint.location) / "state" / "0_0" / "1.delta"
    hidden = before.rename(before.with_name("hidden"))
    del checkpoint.workers[0]
    checkpoint.run(0, 2, lambda store: store("plain").put("a0", "3"))
    hidden.rename(before)
    checkpoint.run(1, 2, lambda store: None)
    checkpoint.commit(2)
    fresh = checkpoint.state(own_root=checkpoint.root / "fresh")
    for one in (state, fresh):
        assert list(opened(one, "plain").all()) == [("a0", "3"), ("a1", "1")]
    fresh.close()


def test_both_phases_of_a_cycle(tmp_path):
    checkpoint = Checkpoint(tmp_path, tasks=1, runs=2)
    state = checkpoint.state()
    store = opened(state, "plain")
    for batch in range(3):
        for phase in range(2):
            number = 2 * batch + phase
            checkpoint.run(0, number, lambda view, n=number: view("plain").put("a", str(n)))
            assert store.get("a") == (str(2 * batch - 1) if batch else None)
        checkpoint.commit(batch)
        assert store.get("a") == str(2 * batch + 1)
    state.close()
    checkpoint.close()


def test_the_replica_of_another_process_is_read_and_left_in_peace(checkpoint):
    """The worker runs elsewhere; what it has not applied yet lies over its replica."""
    worker = subprocess.Popen(
        [sys.executable, str(HERE / "other_worker.py"), str(checkpoint.root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    state = checkpoint.state(worker_root=checkpoint.root / "workers")
    try:
        store = opened(state, "plain")
        for batch in range(50):
            worker.stdin.write(f"{batch}\n")
            worker.stdin.flush()
            assert worker.stdout.readline().strip() == str(batch)
            checkpoint.commit(batch)
            assert store.get("key") == str(batch)
            assert store.approximate_num_entries() == batch + 2
        with state.reading("plain") as reading:
            assert set(reading.sources.values()) == {"worker"}
        assert not (checkpoint.root / "own").exists()
        again = checkpoint.state(worker_root=checkpoint.root / "workers", own_root=checkpoint.root / "more")
        assert opened(again, "plain").get("key") == "49"  # this process has it open already: from the segments
        again.close()
        worker.kill()
        worker.wait()
        assert store.get("key") == "49"
        shutil.rmtree(checkpoint.root / "workers")
        assert store.get("key") == "49"
        with state.reading("plain") as reading:
            assert set(reading.sources.values()) == {"own"}
    finally:
        worker.kill()
        worker.communicate()
        state.close()


def test_many_threads_while_batches_are_committed(checkpoint, state):
    checkpoint.batch(lambda task, store: store("plain").put("a", "0"))
    stop = threading.Event()
    wrong: list[str] = []

    def ask():
        store, last = opened(state, "plain"), 0
        while not stop.is_set():
            values = [int(value) for _, value in store.all()]
            if len(set(values)) != 1 or values[0] < last:
                wrong.append(f"{values} after {last}")
            last = values[0]

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for batch in range(1, 80):
        checkpoint.batch(lambda task, store, batch=batch: store("plain").put("a", str(batch)))
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_unknown_stores_and_other_applications(checkpoint, state):
    with pytest.raises(StateError, match="Did you mean plain"):
        opened(state, "plian")
    from penstock.engines.committed_state.micro_batch_state import CommittedState, QueriedStores
    from penstock.engines.committed_state.task_state import ReplicaFolders

    from .conftest import SPECS

    replicas = ReplicaFolders(checkpoint.root / "own")
    other = CommittedState(checkpoint.location, "another", QueriedStores(SPECS), replicas)
    with pytest.raises(StateError, match="of application 'app'"):
        other.stores()
    as_window = StoreQueryParameters("plain", QueryableStoreTypes.window_store())
    with pytest.raises(StateError, match="not a window store"):
        open_store(state, as_window)


def test_a_checkpoint_in_an_object_store(tmp_path):
    checkpoint = Checkpoint(tmp_path, location="memory://queries")
    state = checkpoint.state(refresh_s=0)
    try:
        store = opened(state, "plain")
        for batch in range(40):
            checkpoint.batch(put("a", str(batch)))
            if batch % 7 == 0:
                assert store.get("a1") == str(batch)
        assert list(store.all()) == [("a0", "39"), ("a1", "39")]
        with state.reading("plain") as reading:
            assert reading.position.to_json() == {"events": {"0": 399, "1": 399}}
            assert reading.committed_ms > 0
    finally:
        state.close()
        checkpoint.close()


def test_the_newest_commit_of_an_object_store_is_not_looked_for_all_the_time(tmp_path):
    checkpoint = Checkpoint(tmp_path, location="memory://seldom")
    state = checkpoint.state(refresh_s=3600)
    checkpoint.batch(put("a", "1"))
    store = opened(state, "plain")
    assert store.get("a0") == "1"
    checkpoint.batch(put("a", "2"))
    assert store.get("a0") == "1"
    state.close()
    checkpoint.close()


def test_iterators_that_are_never_closed_do_not_take_the_workers_place(checkpoint, state, monkeypatch):
    monkeypatch.setattr(tasks, "_PATIENCE_S", 0.05)
    checkpoint.batch(lambda task, store: [store("plain").put(str(n), "v") for n in range(3)])
    store = opened(state, "plain")
    left_open = [store.all() for _ in range(100)]
    for entries in left_open:
        next(entries)
    with pytest.raises(StateError, match="Read iterators to their end"):
        store.get("0")
    left_open.pop().close()
    assert store.get("0") == "v"
    for entries in left_open:
        entries.close()


def test_a_notebook_shows_the_first_entries_of_each_kind_of_store(checkpoint, state):
    checkpoint.fill()
    for name, shown in {
        "plain": "<td>k0</td><td>v0</td>",
        "counts": "<td>k0</td><td>0</td>",
        "windows": "<td>k0</td><td>2026-09-21T14:13:20Z/2026-09-21T14:13:21Z</td><td>0</td>",
        "sessions": "<td>k0</td><td>2026-09-21T14:13:20Z/2026-09-21T14:13:20.050Z</td><td>0</td>",
        "versions": "value=new",
    }.items():
        html = opened(state, name)._repr_html_()
        assert f"<caption>{name}</caption>" in html
        assert shown in html, html


def test_a_notebook_reads_few_entries_and_escapes_them(checkpoint, state):
    keys = [f"<{n:03}>" for n in range(200)]

    def change(task, store):
        for key in keys[task::2]:
            store("plain").put(key, key)
            store("windows").put(key, 1, T, T)
            store("sessions").put(Windowed(key, Window(T, T + 50)), 1)

    checkpoint.batch(change)
    for name in ("plain", "windows", "sessions"):
        html = opened(state, name)._repr_html_()
        assert html.count("<tr>") == 22
        assert "<td>&lt;000&gt;</td>" in html
        assert "<000>" not in html
        with state.reading(name) as reading:
            view = reading.views[0]
            read = count_scanned(view)
            assert len(list(view.first(5))) == 5
            assert len(read) <= 6
            assert list(view.first(0)) == []
            assert list(view.first(1000)) == list(view.all())


def count_scanned(view):
    """The rows that the view reads from now on."""
    read, scan = [], view._map.scan

    class Counted:
        def scan(self, *bounds, **way):
            for row in scan(*bounds, **way):
                read.append(row)
                yield row

    view._map = Counted()
    return read


def test_a_store_that_cannot_be_read_says_so_in_a_notebook(checkpoint, state):
    checkpoint.fill()
    store = opened(state, "plain")
    store._source = Refusing()
    assert "<th>cannot be read</th><td>gone &lt;for good&gt;</td>" in store._repr_html_()


class Refusing:
    def reading(self, store, partitions=None):
        raise StateError("gone <for good>")
