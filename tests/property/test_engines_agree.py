"""The test driver, stream threads and micro-batches agree over jumps in time, with a cache and without one."""

from __future__ import annotations

import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from driving import Outcome, drive
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_gaps import COUNTS, JOINS, gap_cases, join_cases
from stages import staged

sys.path.insert(0, str(Path(__file__).parents[1]))

from batches import cut_in_order
from compare import sorted_store
from examples import examples
from inputs import input_batches
from interpreter import Interpreted, interpret
from penstock.config import StreamsConfig
from penstock.engines.threads.loop.stream_thread import ThreadHooks
from penstock.log.open import open_log
from penstock.topology.plan.plan import TaskId
from things import plain
from threads import new_thread, settle, thread_app

Case = dict[str, Any]
Row = dict[str, Any]
CACHES = (0, 10_485_760)


def searched(test: Any) -> Any:
    return settings(
        max_examples=examples(12),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )(test)


def in_batches(case: Case, run: Interpreted, split: int, cache_bytes: int, *, until_latest: bool = False) -> Outcome:
    with staged(run, cache_bytes=cache_bytes) as stages:
        stages.set_until_latest(until_latest)
        for chunk in cut_in_order(case["inputs"], split):
            stages.run(chunk)
        return stages.outcome()


def in_a_thread(case: Case, run: Interpreted, split: int, cache_bytes: int, *, until_latest: bool = False) -> Outcome:
    with open_log(f"memory://{uuid.uuid4().hex}") as log:
        for topic in run.serdes:
            log.create_topic(topic, 1, {"retention.ms": "-1"})
        config = {
            "application.id": "app",
            "bootstrap.servers": log.url,
            **run.config,
            "statestore.cache.max.bytes": cache_bytes,
        }
        app = thread_app(run.topology, StreamsConfig(config), log)
        thread = new_thread(app, log, hooks=ThreadHooks(until_latest=until_latest))
        thread.start()
        try:
            for chunk in cut_in_order(case["inputs"], split):
                with log.transaction("") as transaction:
                    for topic, batch in input_batches(chunk, run.serdes).items():
                        transaction.append(topic, 0, batch)
                settle(thread)
            stores = {
                name: sorted_store(run.dump_store(_OneStore(thread.store(TaskId(0, 0), name)), name))
                for name in run.stores
            }
            keys, values = run.serdes["out"]
            rows = [
                {
                    "key": plain(keys.deserialize(each["key"])),
                    "value": plain(values.deserialize(each["value"])),
                    "timestamp": each["timestamp"],
                }
                for each in log.read("out", 0, 0, 1_000_000).records.to_pylist()
            ]
            return Outcome({"out": rows} if rows else {}, stores, 0)
        finally:
            thread.close(commit=False)


class _OneStore:
    """Looks like a driver to `Interpreted.dump_store`."""

    def __init__(self, view: Any) -> None:
        self._view = view

    def store(self, name: str) -> Any:
        return self._view


def rows_of(outcome: Outcome) -> list[Row]:
    return outcome.outputs.get("out", [])


def last_values(outcome: Outcome) -> dict[str, Any]:
    """The last value of each key that has any."""
    last = {repr(row["key"]): row["value"] for row in rows_of(outcome)}
    return {key: value for key, value in last.items() if value is not None}


def as_a_set(outcome: Outcome) -> Counter[str]:
    return Counter(repr(row) for row in rows_of(outcome))


def without_times(stores: dict[str, list[Row]]) -> dict[str, list[Row]]:
    return {name: [{k: v for k, v in row.items() if k != "timestamp"} for row in rows] for name, rows in stores.items()}


@pytest.mark.parametrize("cache_bytes", CACHES)
@pytest.mark.parametrize(("window", "sink"), COUNTS)
@searched
@given(data=st.data(), split=st.integers(0, 1000))
def test_windows(window: str, sink: str, cache_bytes: int, data: st.DataObject, split: int) -> None:
    case = data.draw(gap_cases(window, sink))
    run = interpret(case)
    expected = drive(case, run, cache_bytes=cache_bytes)
    for engine in (in_batches, in_a_thread):
        actual = engine(case, run, split, cache_bytes)
        if not cache_bytes or sink == "close":
            assert rows_of(actual) == rows_of(expected)
            assert actual.stores == expected.stores
        else:
            assert without_times(actual.stores) == without_times(expected.stores)
        if sink == "suppress":
            # A session that grows within a batch never leaves the cache as it was before.
            same = _widest if window == "session" and cache_bytes else as_a_set
            assert same(actual) == same(expected)
        elif sink == "update":
            # Nor does Kafka take back one whose time in the store below the cache is over.
            same = _widest if window == "session" and cache_bytes else last_values
            assert same(actual) == same(expected)


@pytest.mark.parametrize("cache_bytes", CACHES)
@pytest.mark.parametrize("kind", JOINS)
@searched
@given(data=st.data(), split=st.integers(0, 1000))
def test_joins(kind: str, cache_bytes: int, data: st.DataObject, split: int) -> None:
    case = data.draw(join_cases(kind))
    run = interpret(case)
    expected = drive(case, run, cache_bytes=cache_bytes)
    for engine in (in_batches, in_a_thread):
        assert rows_of(engine(case, run, split, cache_bytes)) == rows_of(expected)


@pytest.mark.parametrize("cache_bytes", CACHES)
@pytest.mark.parametrize("window", ["tumbling", "hopping"])
@searched
@given(data=st.data(), split=st.integers(0, 1000))
def test_until_latest_all_windows_that_have_closed_come_out(
    window: str, cache_bytes: int, data: st.DataObject, split: int
) -> None:
    """With Kafka's own intervals of a second, which no run of the test lasts; the driver looks after each record."""
    case = data.draw(gap_cases(window, "close"))
    expected = drive(case, interpret(case), cache_bytes=cache_bytes)
    timed = {**case, "config": {}}
    run = interpret(timed)
    for engine in (in_batches, in_a_thread):
        assert as_a_set(engine(timed, run, split, cache_bytes, until_latest=True)) == as_a_set(expected)


@pytest.mark.parametrize("window", ["session", "sliding"])
@searched
@given(data=st.data(), split=st.integers(0, 1000))
def test_until_latest_no_session_is_lost_between_two_looks(window: str, data: st.DataObject, split: int) -> None:
    """As with a store that keeps them for ever, in which Kafka's look after each record finds all of them.

    Records come in order of time: a late one would find a session in such a store that has expired in the usual one.
    """
    case = data.draw(gap_cases(window, "close"))
    case["inputs"].sort(key=lambda record: record["timestamp"])
    kept = {**case, "topology": [{**n, "retention_ms": 1 << 40} if n["op"] == "count" else n for n in case["topology"]]}
    expected = drive(kept, interpret(kept), cache_bytes=CACHES[1])
    timed = {**case, "config": {}}
    run = interpret(timed)
    for engine in (in_batches, in_a_thread):
        assert _widest(engine(timed, run, split, CACHES[1], until_latest=True)) == _widest(expected)


@pytest.mark.parametrize("kind", JOINS)
@searched
@given(data=st.data(), split=st.integers(0, 1000))
def test_until_latest_no_unmatched_record_stays_inside(kind: str, data: st.DataObject, split: int) -> None:
    case = data.draw(join_cases(kind))
    expected = drive(case, interpret(case))
    timed = {**case, "config": {}}
    run = interpret(timed)
    for engine in (in_batches, in_a_thread):
        assert rows_of(engine(timed, run, split, CACHES[1], until_latest=True)) == rows_of(expected)


def _widest(outcome: Outcome) -> dict[str, Any]:
    """The last value of each window that no larger one has taken in: a session may grow after it has been sent."""
    found = {repr(row["key"]): row for row in rows_of(outcome)}
    rows = [row for row in found.values() if row["value"] is not None]
    for row in rows:
        key = row["key"]
        for other in rows:
            o = other["key"]
            wider = o["key"] == key["key"] and o != key and o["start"] <= key["start"] and key["end"] <= o["end"]
            if wider:
                found.pop(repr(key), None)
    return {name: row["value"] for name, row in found.items() if row["value"] is not None}
