"""Version 2: each type of query against each kind of store, positions, bounds, and what can go wrong."""

from __future__ import annotations

import pytest

from penstock import Materialized, StreamsBuilder, TopologyTestDriver
from penstock.errors import StateError
from penstock.query import (
    FailureReason,
    KeyQuery,
    MultiVersionedKeyQuery,
    Position,
    PositionBound,
    PrefixQuery,
    QueryableStoreTypes,
    RangeQuery,
    StateQueryRequest,
    StoreQueryParameters,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from penstock.query.execute import run_query
from penstock.query.stores import open_store
from penstock.serde.windowed import Window, Windowed
from penstock.state.views import ValueAndTimestamp, VersionedRecord

from .conftest import T


def ask(state, store, query, **how):
    return run_query(state, StateQueryRequest(store, query, **how), is_active=True)


def all_of(result):
    return [entry for number in sorted(result.partition_results) for entry in result.partition_results[number].get()]


@pytest.fixture
def full(checkpoint, state):
    checkpoint.fill()
    return state


def test_key_value_stores(full):
    assert ask(full, "counts", KeyQuery.with_key("k3").skip_cache()).only_partition_result.get() == 3
    assert ask(full, "counts", TimestampedKeyQuery.with_key("k3")).only_partition_result.get() == ValueAndTimestamp(
        3, T + 3
    )
    assert all_of(ask(full, "counts", RangeQuery.with_range("k1", "k4").with_descending_keys())) == [
        ("k4", 4), ("k2", 2), ("k3", 3), ("k1", 1),
    ]  # fmt: skip
    assert all_of(ask(full, "counts", TimestampedRangeQuery.with_upper_bound("k0"))) == [
        ("k0", ValueAndTimestamp(0, T))
    ]
    assert len(all_of(ask(full, "plain", RangeQuery.with_no_bounds().with_ascending_keys()))) == 6
    assert all_of(ask(full, "plain", RangeQuery.with_lower_bound("k5"))) == [("k5", "v5")]
    assert all_of(ask(full, "plain", PrefixQuery.with_prefix("k4"))) == [("k4", "v4")]
    assert ask(full, "counts", KeyQuery("none")).only_partition_result is None


def test_windows_and_sessions(full):
    windows = WindowKeyQuery.with_key_and_window_start_range("k2", T, T + 999)
    assert all_of(ask(full, "windows", windows)) == [(T, ValueAndTimestamp(2, T))]
    everything = all_of(ask(full, "windows", WindowRangeQuery.with_window_start_range(T + 1, T + 5000)))
    assert sorted((key.key, value.value) for key, value in everything) == [(f"k{n}", n + 10) for n in range(6)]
    sessions = all_of(ask(full, "sessions", WindowRangeQuery.with_key("k1")))
    assert sessions == [(Windowed("k1", Window(T, T + 50)), 1)]


def test_versions(checkpoint, full):
    checkpoint.batch(
        lambda task, store: [store("versions").put("k1", None, T + 200), store("versions").put("k1", "last", T + 300)]
    )
    latest = ask(full, "versions", VersionedKeyQuery.with_key("k1"), partitions=frozenset({1})).only_partition_result
    assert latest.get() == VersionedRecord("last", T + 300, None)
    old = VersionedKeyQuery.with_key("k1").as_of(T + 50)
    assert ask(full, "versions", old).only_partition_result.get() == VersionedRecord("old", T, T + 100)
    every = MultiVersionedKeyQuery.with_key("k1")
    versions = [VersionedRecord("old", T, T + 100), VersionedRecord("new", T + 100, T + 200), latest.get()]

    def found(query):
        return ask(full, "versions", query).partition_results[1].get()

    assert found(every.with_ascending_timestamps()) == versions
    assert found(every.with_descending_timestamps()) == versions[::-1]
    assert found(every.from_time(T + 100).to_time(T + 250)) == [versions[1]]
    assert found(every.from_time(T + 200).to_time(T + 299)) == []
    assert found(every.to_time(T + 99)) == [versions[0]]
    assert found(every.from_time(T + 1).to_time(T + 99)) == [versions[0]]
    store = open_store(full, StoreQueryParameters("versions"))
    assert (store.get("k1").value, store.get("k1", T).value) == ("last", "old")
    assert [v.value for v in store.versions("k0")] == ["new", "old"]
    assert len(list(store.all())) == 7  # k1 is in both partitions now


def test_read_only_stores_of_all_kinds(full):
    windows = open_store(full, StoreQueryParameters("windows"))
    assert windows.fetch("k2", T) == 2
    assert list(windows.fetch("k2", T, T + 2000)) == [(T, 2), (T + 1000, 12)]
    assert list(windows.backward_fetch("k2", T, T + 2000)) == [(T + 1000, 12), (T, 2)]
    assert [value for _, value in windows.fetch_key_range("k2", "k2", T, T + 2000)] == [2, 12]
    assert len(list(windows.all())) == len(list(windows.backward_all())) == 12
    assert len(list(windows.fetch_all(T, T))) == len(list(windows.backward_fetch_all(T, T))) == 6
    timed = StoreQueryParameters.from_name_and_type("windows", QueryableStoreTypes.timestamped_window_store())
    assert open_store(full, timed).fetch("k2", T) == ValueAndTimestamp(2, T)
    sessions = open_store(full, StoreQueryParameters("sessions"))
    assert sessions.fetch_session("k2", T, T + 50) == 2
    assert [value for _, value in sessions.fetch("k2")] == [value for _, value in sessions.backward_fetch("k2")] == [2]
    assert list(sessions.find_sessions("k2", T + 51, T + 99)) == []
    assert len(list(sessions.all())) == 6
    timed = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.timestamped_key_value_store())
    assert open_store(full, timed.with_partition(1)).get("k3") == ValueAndTimestamp(3, T + 3)


def test_positions_and_bounds(checkpoint, full):
    result = ask(full, "counts", KeyQuery("k3"))
    assert result.partition_results[1].position == Position({"events": {1: 9}})
    assert result.position == Position({"events": {0: 9, 1: 9}})
    bound = PositionBound.at(Position().with_component("events", 1, 10))
    result = ask(full, "counts", KeyQuery("k2"), bound=bound)
    assert result.partition_results[0].get() == 2  # the bound says nothing of its partition
    assert result.partition_results[1].failure_reason is FailureReason.NOT_UP_TO_BOUND
    checkpoint.commit(1)
    assert ask(full, "counts", KeyQuery("k3"), bound=bound).only_partition_result.get() == 3


def test_failures(checkpoint, full):
    def reason(result, number=0):
        assert result.partition_results[number].is_failure
        return result.partition_results[number].failure_reason

    assert reason(ask(full, "windows", KeyQuery("k"))) is FailureReason.UNKNOWN_QUERY_TYPE
    assert reason(ask(full, "plain", TimestampedRangeQuery())) is FailureReason.UNKNOWN_QUERY_TYPE
    assert reason(ask(full, "plain", KeyQuery(7))) is FailureReason.STORE_EXCEPTION
    assert reason(ask(full, "plain", KeyQuery("k"), partitions=frozenset({5})), 5) is FailureReason.DOES_NOT_EXIST
    request = StateQueryRequest.in_store("plain").with_query(KeyQuery("k")).require_active()
    assert reason(run_query(full, request, is_active=False)) is FailureReason.NOT_ACTIVE
    with pytest.raises(StateError, match="NOT_ACTIVE"):
        run_query(full, request, is_active=False).partition_results[0].get()
    with pytest.raises(StateError, match="Did you mean"):
        ask(full, "plains", KeyQuery("k"))
    both = ask(full, "plain", RangeQuery())
    with pytest.raises(StateError, match="2 partitions"):
        _ = both.only_partition_result
    (checkpoint.root / "checkpoint" / "state" / "0_0" / "0.delta").write_bytes(b"broken")
    fresh = checkpoint.state(own_root=checkpoint.root / "fresh")
    assert reason(ask(fresh, "plain", KeyQuery("k0"))) is FailureReason.STORE_EXCEPTION
    fresh.close()


def test_nothing_is_there_yet(state):
    result = ask(state, "plain", KeyQuery("k"))
    assert result.partition_results[0].failure_reason is FailureReason.NOT_PRESENT


def test_the_test_driver_answers_too():
    builder = StreamsBuilder()
    builder.stream("words").group_by_key().count(Materialized("counts"))
    builder.global_table("names", materialized=Materialized("known"))
    serdes = {"default.key.serde": "string", "default.value.serde": "string"}
    with TopologyTestDriver(builder.build(), serdes, batch_size=10) as driver:
        words = driver.input_topic("words")
        for _ in range(3):
            words.pipe("x", key="a")
        driver.input_topic("names").pipe("Anna", key="a")
        request = StateQueryRequest.in_store("counts").with_query(KeyQuery("a")).enable_execution_info()
        found = driver.query(request).only_partition_result
        assert (found.get(), found.position) == (3, Position({"words": {0: 2}}))
        assert len(found.execution_info) == 2
        assert driver.query(StateQueryRequest("known", KeyQuery("a"))).global_result.get() == "Anna"
