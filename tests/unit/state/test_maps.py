"""Memory map, and replica with overlay through restarts, against a dict."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.maps import MemoryMap, Overlay
from penstock.state.snapshots import SnapshotPolicy
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.topology.stores import StoreSpec

LONG = b"l" * 478
KEYS = st.one_of(
    st.binary(max_size=2),
    st.sampled_from([b"", LONG, LONG + b"a", LONG + b"b", LONG + b"b" * 600, LONG[:-1], LONG[:-1] + b"m", b"\0" * 600]),
)
WRITES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=4))), max_size=12)
SPECS = [StoreSpec("s", "key_value", None, None), StoreSpec("t", "key_value", None, None)]


def write(target, model, writes, *, many):
    if many:
        target.put_many([key for key, _ in writes], [value for _, value in writes])
    for key, value in writes:
        if not many:
            target.put(key, value)
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value


def check(target, model, asked):
    low, high = min(asked), max(asked)
    rows = sorted(model.items())
    assert list(target.scan()) == rows
    assert list(target.scan(reverse=True)) == rows[::-1]
    inside = [row for row in rows if low <= row[0] < high]
    assert list(target.scan(low, high)) == inside
    assert list(target.scan(low, high, reverse=True)) == inside[::-1]
    assert target.scan_many([(low, high), (high, low)]) == [inside, []]
    assert target.read(low, high, len(inside)) == ([key for key, _ in inside], [value for _, value in inside])
    assert not inside or target.read(low, high, len(inside) - 1) is None
    assert list(target.scan(low)) == [row for row in rows if row[0] >= low]
    assert list(target.scan(None, high, reverse=True)) == [row for row in rows[::-1] if row[0] < high]
    assert target.get_many(asked) == [model.get(key) for key in asked]
    assert [target.get(key) for key in asked] == [model.get(key) for key in asked]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(WRITES, st.booleans(), st.lists(KEYS, min_size=1))))
def test_memory_map_and_overlays_on_it(steps):
    memory, model = MemoryMap(), {}
    layered = Overlay(Overlay(MemoryMap([(b"a", b"x"), (b"b", b"y")])))
    layered_model = {b"a": b"x", b"b": b"y"}
    for writes, many, asked in steps:
        write(memory, model, writes, many=many)
        write(layered, layered_model, writes, many=many)
        check(memory, model, asked)
        check(layered, layered_model, asked)
        assert len(memory) == len(model)


def test_a_scan_does_not_see_writes_that_come_later():
    layered = Overlay(MemoryMap([(b"b", b"1")]))
    layered.put(b"a", b"1")
    rows = layered.scan()
    layered.put(b"a", None)
    layered.put(b"c", b"1")
    assert list(rows) == [(b"a", b"1"), (b"b", b"1")]


POLICIES = st.builds(
    SnapshotPolicy,
    every=st.integers(1, 4),
    share=st.sampled_from([0.0, 1.0, 1e9]),
    part_bytes=st.sampled_from([1, 1 << 20]),
)
STEP = st.tuples(WRITES, st.booleans(), st.sampled_from(["go on", "go on", "restart", "lose replica", "retry"]))


@settings(max_examples=40, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=8), st.lists(KEYS, min_size=1), POLICIES)
def test_task_store_through_restarts(steps, asked, policy):
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)

        def opened():
            return TaskStore(
                StatePlace(str(root / "checkpoint"), root / f"replica{replicas}", durable=False),
                StateOwner("app"),
                "0_0",
                SPECS,
                policy=policy,
            )

        replicas, model, other = 0, {}, {}
        store = opened()
        for batch, (writes, many, then) in enumerate(steps):
            if then == "retry":
                write(store.begin(batch).map("s"), {}, writes[::-1], many=True)
            state = store.begin(batch)
            check(state.map("s"), model, asked)
            write(state.map("s"), model, writes, many=many)
            check(state.map("s"), model, asked)
            write(state.map("t"), other, writes[:1], many=many)
            if writes:
                state.meta["batch"] = batch
            assert store.publish(batch, {}).stored == bool(writes)
            if then in {"restart", "lose replica"}:
                store.close()
                replicas += then == "lose replica"
                store = opened()
        state = store.begin(len(steps))
        check(state.map("s"), model, asked)
        check(state.map("t"), other, asked)
        store.close()
