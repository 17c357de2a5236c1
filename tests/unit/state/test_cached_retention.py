"""What a cached store keeps after its retention, and what an operator holds."""

from __future__ import annotations

import numpy as np

from penstock.serde.column import Column
from penstock.serde.primitives import NumberSerde, StringSerde
from penstock.serde.windowed import Window, Windowed
from penstock.state.maps import MemoryMap, MemoryTaskState, Overlay
from penstock.state.views import open_view
from penstock.topology.stores import StoreSpec

WINDOWS = StoreSpec(
    "w", "window", StringSerde(), NumberSerde("long"), timestamped=True, retention_ms=60_000, window_size_ms=60_000
)
SESSIONS = StoreSpec("s", "session", StringSerde(), NumberSerde("long"), retention_ms=60_000)
LATER = 100 * 60_000
ROW = 8 + 1 + 8 + 16  # bucket, key, start; time and value


def opened(spec, cache_bytes, state=None):
    state = state or MemoryTaskState([spec])
    return open_view(spec, state.map(spec.name), state.meta, cache_bytes), state


def starts(view):
    return [windowed.window.start for windowed, _ in view.all()]


def test_a_window_stays_in_the_cache_when_its_time_is_over():
    view, state = opened(WINDOWS, 1000)
    view.put("a", 1, 0, 0)
    view.put("b", 2, LATER, LATER)
    assert starts(view) == [0, LATER]
    assert view.fetch("a", 0) == (1, 0)
    view.put("a", 3, 60_000, 60_000)  # nothing comes too late for a cache
    assert (starts(view), view.take_dropped()) == ([0, 60_000, LATER], 0)
    reader, _ = opened(WINDOWS, None, state)  # one that does not know whether there is a cache
    assert starts(reader) == [0, 60_000, LATER]


def test_without_a_cache_it_goes():
    view, state = opened(WINDOWS, 0)
    view.put("a", 1, 0, 0)
    view.put("b", 2, LATER, LATER)
    view.put("a", 3, 60_000, 60_000)
    assert (starts(view), view.take_dropped()) == ([LATER], 1)
    assert starts(opened(WINDOWS, None, state)[0]) == [LATER]


def test_the_cache_lets_go_of_the_oldest_when_it_is_full():
    view, state = opened(WINDOWS, 10 * ROW)
    for number in range(1000):
        view.put("a", number, number * 60_000, number * 60_000)
    kept = starts(view)
    assert kept[-1] == 999 * 60_000
    assert 5 <= len(kept) <= 14
    assert len(state.map("w")) == len(kept)  # the others are not only hidden


def test_a_jump_over_more_than_the_cache_can_hold():
    view, _ = opened(WINDOWS, 3 * ROW)
    for number in range(8):
        view.put(f"{number}", number, 0, 0)
    view.put("b", 2, LATER, LATER)
    assert starts(view) == [LATER]


def test_late_rows_count_too():
    view, state = opened(WINDOWS, 10 * ROW)
    view.put("b", 2, LATER, LATER)
    for number in range(200):
        view.put(f"{number}", number, 0, 0)
    assert len(state.map("w")) < 60


def test_a_store_whose_cache_is_turned_off_later():
    view, state = opened(WINDOWS, 1000)
    view.put("a", 1, 0, 0)
    view.put("b", 2, LATER, LATER)
    view, _ = opened(WINDOWS, 0, state)
    assert starts(view) == [LATER]
    view.put("b", 3, LATER, LATER)
    assert starts(opened(WINDOWS, None, state)[0]) == [LATER]
    view, _ = opened(WINDOWS, 1000, state)  # and on again
    view.put("b", 3, LATER + 1, LATER + 1)
    assert starts(view) == [LATER, LATER + 1]


def test_held_windows_are_found_by_who_sends_them_and_by_nobody_else():
    view, _ = opened(WINDOWS, 0)
    view.hold(0)
    view.put("a", 1, 0, 0)
    view.put("b", 2, LATER, LATER)
    assert starts(view) == [LATER]
    assert [w.window.start for w, _ in view.fetch_closed(0, LATER - 1)] == [0]
    view.hold(60_000)
    view.put("c", 2, LATER + 60_000, LATER)
    assert list(view.fetch_closed(0, LATER - 1)) == []


def test_held_sessions():
    view, _ = opened(SESSIONS, 0)
    view.hold(0)
    for session in (Windowed("a", Window(0, 10)), Windowed("b", Window(LATER, LATER))):
        view.put(session, 1)
    assert [s.window.end for s, _ in view.all()] == [LATER]
    assert [s.window.end for s, _ in view.find_ended(0, LATER - 1)] == [10]
    view.hold(None)
    view.put(Windowed("b", Window(LATER, LATER + 1)), 1)
    assert list(view.find_ended(0, LATER - 1)) == []


def test_the_rows_of_an_overlay_are_counted_by_what_changes():
    overlay = Overlay(MemoryMap([(b"a", b"1"), (b"b", b"2")]))
    overlay.put(b"a", b"3")  # replaced
    overlay.put(b"c", b"4")
    overlay.put(b"c", None)  # comes and goes
    overlay.put(b"d", None)  # was never there
    assert len(overlay) == 2
    overlay.put(b"b", None)
    assert len(overlay) == 1
    empty = Overlay(MemoryMap())
    empty.put(b"a", None)
    assert len(empty) == 0


DECADES = 1_800_000_000_000  # milliseconds: of a store of small windows, billions of buckets
SMALL = StoreSpec(
    "w", "window", StringSerde(), NumberSerde("long"), timestamped=True, retention_ms=60_000, window_size_ms=10
)


def test_a_cache_over_decades_is_read_without_a_look_at_each_bucket():
    """A first record of 1970 and then those of now: ranges have few rows and billions of empty buckets."""
    view, _ = opened(SMALL, 100_000)
    times = [0, 10, 1_000_000, DECADES, DECADES + 10]
    for number, time in enumerate(times):
        view.put("a", number, time, time)
        view.put("b", number, time, time)
    assert [start for start, _ in view.fetch_range("a", 0, DECADES + 10)] == times
    assert [start for start, _ in view.fetch_range("a", 0, DECADES + 10, reverse=True)] == times[::-1]
    assert [start for start, _ in view.fetch_range("a", 5, DECADES)] == times[1:4]
    assert list(view.fetch_range("c", 0, DECADES)) == []
    columns = Column.of_items(["a", "c", "b"]), np.array([0, 0, 5]), np.array([DECADES] * 2 + [10])
    owners, starts_, values, _ = view.fetch_many(*columns)
    assert list(zip(owners, starts_, values.items(), strict=True)) == [
        (0, 0, 0), (0, 10, 1), (0, 1_000_000, 2), (0, DECADES, 3), (2, 10, 1),
    ]  # fmt: skip
    assert set(times[:4]) <= set(view.fetch_rows([b"a"], 0, DECADES).starts.tolist())


def test_the_buckets_of_an_ordinary_range_are_not_listed_one_by_one():
    view, _ = opened(SMALL, 100_000)
    times = [0, 10, 20, 30_000, 40_000]
    for number, time in enumerate(times):
        view.put("a", number, time, time)
    buckets = view._time.buckets(0, 40_000)
    assert isinstance(buckets, range)
    assert view._time.buckets(0, 40_000, reverse=True) == buckets[::-1]
    assert sorted(view.fetch_rows([b"a"], 0, 40_000).starts.tolist()) == times
    assert [start for start, _ in view.fetch_range("a", 0, 40_000, reverse=True)] == times[::-1]


def test_sessions_of_decades_are_found_without_a_look_at_each_bucket():
    view, _ = opened(SESSIONS, 100_000)
    times = [0, 1_000_000, DECADES]
    for number, time in enumerate(times):
        view.put(Windowed("a", Window(time, time)), number)
    found = [(windowed.window.end, value) for windowed, value in view.find_sessions("a", 0, DECADES)]
    assert found == [(0, 0), (1_000_000, 1), (DECADES, 2)]
    backwards = [windowed.window.end for windowed, _ in view.find_sessions("a", 0, DECADES, reverse=True)]
    assert backwards == times[::-1]
    owners, starts_, ends, values = view.find_many(
        Column.of_items(["a", "b", "a"]), np.array([0, 0, 5]), np.array([DECADES, DECADES, 1_000_000])
    )
    assert list(zip(owners, ends, values.items(), strict=True)) == [
        (0, 0, 0),
        (0, 1_000_000, 1),
        (0, DECADES, 2),
        (2, 1_000_000, 1),
    ]
    assert starts_.tolist() == ends.tolist()
