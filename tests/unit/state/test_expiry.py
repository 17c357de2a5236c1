"""Windows and sessions that have expired leave a store in pieces, and nothing that is read shows how far that is."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.serde.primitives import NumberSerde, StringSerde
from penstock.serde.windowed import Window, Windowed
from penstock.state import maps
from penstock.state.maps import MemoryMap, MemoryTaskState, TaskOverlay
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.state.views import open_view
from penstock.topology.stores import StoreSpec

SECOND, MINUTE = 1_000, 60_000
SERDES = (StringSerde(), NumberSerde("long"))
WINDOWS = StoreSpec("s", "window", *SERDES, window_size_ms=SECOND, retention_ms=MINUTE)
SESSIONS = StoreSpec("s", "session", *SERDES, retention_ms=MINUTE)
PUTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400).map(lambda n: n * SECOND)), max_size=6)


def put(spec, view, key, time, value):
    if spec.kind == "window":
        view.put(key, value, time)
    else:
        view.put(Windowed(key, Window(time, time + SECOND)), value)


def seen(spec, view):
    """All that a program can read, expired or not."""
    windows = spec.kind == "window"
    found = [list(view.all())]
    found += [list(view.fetch_range(key, 0, 1 << 40) if windows else view.fetch(key)) for key in "abc"]
    if spec.kind == "session":
        found.append(list(view.find_ended(0, 1 << 40)))
        found.append([view.fetch_session("a", time * SECOND, time * SECOND + SECOND) for time in range(400)])
    else:
        found.append([view.fetch("a", time * SECOND) for time in range(400)])
    return found


@pytest.mark.parametrize("spec", [WINDOWS, SESSIONS], ids=["windows", "sessions"])
@settings(max_examples=60, deadline=None)
@given(batches=st.lists(PUTS, max_size=8))
def test_what_is_read_does_not_tell_how_much_has_been_deleted(spec, batches):
    at_once = MemoryTaskState([spec])
    expected = open_view(spec, at_once.map("s"), at_once.meta)
    committed, meta = MemoryMap(), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maps, "_FEWEST_EXPIRED", 1)
        for number, batch in enumerate(batches):
            state = TaskOverlay(number, {"s": committed}, meta)
            view = open_view(spec, state.map("s"), state.meta)
            for value, (key, time) in enumerate(batch):
                put(spec, expected, key, time, value)
                put(spec, view, key, time, value)
                assert view.take_dropped() == expected.take_dropped()
            assert seen(spec, view) == seen(spec, expected)
            for changes in state.sorted_changes().values():
                committed.put_many(changes.column(0).to_pylist(), changes.column(1).to_pylist())
            meta = dict(state.meta)
            assert seen(spec, open_view(spec, TaskOverlay(number, {"s": committed}, meta).map("s"), meta)) == seen(
                spec, expected
            )


def test_a_batch_deletes_a_piece_and_the_next_ones_the_rest(tmp_path, monkeypatch):
    monkeypatch.setattr(maps, "_FEWEST_EXPIRED", 300)
    rows = 1_000
    with TaskStore(StatePlace(str(tmp_path / "c"), tmp_path / "r"), StateOwner("a"), "0_0", [WINDOWS]) as store:
        state = store.begin(0)
        view = open_view(WINDOWS, state.map("s"), state.meta)
        for number in range(rows):
            view.put(f"k{number}", number, number % 50 * SECOND)
        store.publish(0, {})
        left = []
        for batch in range(1, 6):
            state = store.begin(batch)
            left.append(len(state.map("s")))
            view = open_view(WINDOWS, state.map("s"), state.meta)
            view.put("new", batch, 10 * MINUTE)
            assert [window.key for window, _ in view.all()] == ["new"]
            store.publish(batch, {})
        left.append(len(store.begin(6).map("s")))
    assert left == [rows, 701, 401, 101, 1, 1]
    assert all(before - after <= 300 for before, after in pairwise(left))
