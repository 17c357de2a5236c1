"""Every store view against a plain model, in memory and over LMDB with batches in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.serde.column import Column
from penstock.serde.primitives import NumberSerde, StringSerde
from penstock.serde.windowed import Window, Windowed
from penstock.state.maps import MemoryTaskState
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.state.views import ValueAndTimestamp, VersionedRecord, open_view
from penstock.state.views.versioned import IS_LATEST, NOT_PUT
from penstock.topology.stores import StoreSpec

KEYS = st.sampled_from(["", "a", "ab", "b", "a\x00", "\xff" * 300])
VALUES = st.one_of(st.none(), st.integers(0, 9))
PLACES = pytest.mark.parametrize("place", ["memory", "disk"])


class Place:
    """A store somewhere; `turn` ends a batch."""

    def __init__(self, spec: StoreSpec, directory: Path | None) -> None:
        self.spec = spec
        self._batches = count()
        self._store: TaskStore | None = None
        if directory is None:
            self._state: Any = MemoryTaskState([spec])
        else:
            self._store = TaskStore(
                StatePlace(str(directory / "checkpoint"), directory / "replica", durable=False),
                StateOwner("app"),
                "0_0",
                [spec],
            )
            self._batch = next(self._batches)
            self._state = self._store.begin(self._batch)

    @property
    def meta(self) -> Any:
        return self._state.meta

    def view(self) -> Any:
        return open_view(self.spec, self._state.map(self.spec.name), self._state.meta)

    def turn(self) -> None:
        if self._store is not None:
            self._store.publish(self._batch, {})
            self._batch = next(self._batches)
            self._state = self._store.begin(self._batch)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


@contextmanager
def store(place: str, kind: str, **options: Any) -> Iterator[Place]:
    spec = StoreSpec("store", kind, StringSerde(), NumberSerde("long"), **options)  # type: ignore[arg-type]
    with TemporaryDirectory() as directory:
        made = Place(spec, None if place == "memory" else Path(directory))
        yield made
        made.close()


def in_order(model: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(key, model[key]) for key in sorted(model, key=str.encode)]


@PLACES
@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.tuples(KEYS, VALUES), max_size=6), max_size=4), KEYS, KEYS)
def test_key_value(place: str, batches: list[list[Any]], low: str, high: str) -> None:
    model: dict[str, Any] = {}
    with store(place, "key_value") as at:
        for batch in batches:
            view = at.view()
            for key, value in batch:
                view.put(key, value)
                model = {k: v for k, v in {**model, key: value}.items() if v is not None}
            assert list(view.all()) == in_order(model)
            inside = [row for row in in_order(model) if low.encode() <= row[0].encode() <= high.encode()]
            assert list(view.range(low, high)) == inside
            assert list(view.reverse_range(low, high)) == inside[::-1]
            assert view.get_many([low, high]) == [model.get(low), model.get(high)]
            at.turn()


@PLACES
@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.tuples(KEYS, VALUES, st.integers(0, 99)), max_size=6), max_size=4))
def test_timestamped(place: str, batches: list[list[Any]]) -> None:
    model: dict[str, Any] = {}
    with store(place, "timestamped", timestamped=True) as at:
        for batch in batches:
            view = at.view()
            for key, value, time in batch:
                view.put(key, value, time)
                model[key] = None if value is None else ValueAndTimestamp(value, time)
            model = {k: v for k, v in model.items() if v is not None}
            assert list(view.all()) == in_order(model)
            at.turn()


@PLACES
@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.tuples(KEYS, VALUES, st.integers(0, 40)), max_size=6), max_size=4))
def test_windows(place: str, batches: list[list[Any]]) -> None:
    """Long retention: what expires is covered by the tests of views."""
    model: dict[tuple[str, int], Any] = {}
    with store(place, "window", window_size_ms=10, retention_ms=1_000_000) as at:
        for batch in batches:
            view = at.view()
            for key, value, time in batch:
                start = time // 10 * 10
                view.put(key, value, start)
                model[key, start] = value
            model = {k: v for k, v in model.items() if v is not None}
            assert sorted(((w.key, w.window.start), v) for w, v in view.all()) == sorted(model.items())
            for key, start in model:
                expected = sorted((s, v) for (k, s), v in model.items() if k == key and s <= start)
                assert list(view.fetch_range(key, 0, start)) == expected
            at.turn()


@PLACES
@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.tuples(KEYS, VALUES, st.integers(0, 40), st.integers(0, 20)), max_size=6), max_size=4))
def test_sessions(place: str, batches: list[list[Any]]) -> None:
    model: dict[tuple[str, int, int], Any] = {}
    with store(place, "session", retention_ms=1_000_000) as at:
        for batch in batches:
            view = at.view()
            for key, value, start, length in batch:
                view.put(Windowed(key, Window(start, start + length)), value)
                model[key, start, start + length] = value
            model = {k: v for k, v in model.items() if v is not None}
            found = sorted(((w.key, w.window.start, w.window.end), v) for w, v in view.all())
            assert found == sorted(model.items())
            for key, start, end in model:
                expected = {(s, e): v for (k, s, e), v in model.items() if k == key and e >= start and s <= end}
                assert {(w.window.start, w.window.end): v for w, v in view.find_sessions(key, start, end)} == expected
            at.turn()


@PLACES
@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.tuples(KEYS, VALUES, st.integers(0, 20_000)), max_size=8), max_size=4))
def test_versions(place: str, batches: list[list[Any]]) -> None:
    """The model keeps every put; the store may forget what is older than its history.

    A deletion at the very time of the latest version is left out: Kafka's store, and so ours, may forget that it was
    there (it matters only to puts that come later and are older).
    """
    history = 6_000
    model: dict[str, dict[int, Any]] = {}
    observed = -1
    with store(place, "versioned", history_ms=history) as at:
        for batch in batches:
            view = at.view()
            for key, value, time in batch:
                versions = model.setdefault(key, {})
                if value is None and versions and time == max(versions):
                    continue
                code = view.put(key, value, time)
                if time < observed - history:
                    assert code == NOT_PUT
                    continue
                observed = max(observed, time)
                later = [t for t in versions if t > time]
                assert code == (min(later) if later else IS_LATEST)
                versions[time] = value
            for key, versions in model.items():
                for time in [*range(max(0, observed - history), 20_001, 1_500), *versions]:
                    assert view.get(key, time) == _valid(versions, time, observed - history)
                assert view.get(key) == _valid(versions, 1 << 40, -1)
                assert view.get_columns(Column.of_items([key]))[1].tolist() == [
                    -1 if view.get(key) is None else view.get(key).timestamp
                ]
            latest = {key: found for key in model if (found := view.get(key)) is not None}
            assert list(view.all()) == in_order(latest)
            at.turn()


def _valid(versions: dict[int, Any], time: int, oldest: int) -> VersionedRecord | None:
    earlier = [t for t in versions if t <= time]
    if not earlier or versions[max(earlier)] is None:
        return None
    later = [t for t in versions if t > time]
    if later and time < oldest:
        return None
    return VersionedRecord(versions[max(earlier)], max(earlier), min(later) if later else None)


@PLACES
@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.tuples(st.booleans(), KEYS, VALUES), max_size=8), max_size=4))
def test_least_recently_used(place: str, batches: list[list[Any]]) -> None:
    model: dict[str, Any] = {}
    with store(place, "lru", max_entries=3, persistent=False) as at:
        for batch in batches:
            view = at.view()
            for reads, key, value in batch:
                if reads:
                    assert view.get(key) == model.get(key)
                    if key in model:
                        model[key] = model.pop(key)
                    continue
                view.put(key, value)
                model.pop(key, None)
                if value is not None:
                    model[key] = value
                if len(model) > 3:
                    del model[next(iter(model))]
            assert list(view.all()) == in_order(model)
            assert view.approximate_num_entries() == len(model)
            at.turn()


@PLACES
@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 30), KEYS, VALUES), max_size=8), max_size=4))
def test_time_to_live(place: str, batches: list[list[Any]]) -> None:
    model: dict[str, tuple[int, Any]] = {}
    with store(place, "key_value", ttl_ms=40) as at:
        now = 0
        for batch in batches:
            view = at.view()
            for step, key, value in batch:
                now += step
                at.meta["stream_time"] = now
                model = {k: entry for k, entry in model.items() if entry[0] + 40 > now}
                assert view.get(key) == (model[key][1] if key in model else None)
                view.put(key, value)
                model.pop(key, None)
                if value is not None:
                    model[key] = (now, value)
                assert list(view.all()) == in_order({k: v for k, (_, v) in model.items()})
            at.turn()
