"""Queries of stores that keep headers, isolation levels, and the position of each store, in the test driver."""

from __future__ import annotations

import pytest

from penstock import Materialized, Processor, StreamsBuilder, TopologyTestDriver
from penstock.api.stores import Stores
from penstock.errors import StateError
from penstock.query import (
    FailureReason,
    KeyQuery,
    MultiVersionedKeyQuery,
    Position,
    PositionBound,
    QueryableStoreTypes,
    RangeQuery,
    ReadOnlyRecord,
    StateQueryRequest,
    StoreQueryParameters,
    TimestampedKeyQuery,
    TimestampedKeyWithHeadersQuery,
    TimestampedRangeWithHeadersQuery,
    TimestampedWindowKeyWithHeadersQuery,
    TimestampedWindowRangeWithHeadersQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from penstock.query.stores import open_store
from penstock.serde.windowed import Window, Windowed
from penstock.state.views import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders
from penstock.testing.driver import DriverState

TEXT = {"key_serde": "string", "value_serde": "string"}
CONFIG = {"statestore.cache.max.bytes": 0, "default.key.serde": "string", "default.value.serde": "string"}
HEADERS = (("h", b"1"),)


class Fill(Processor):
    """Puts each record into the stores of all kinds."""

    def process(self, record):
        key, value, time = record.key, record.value, record.timestamp
        entry = ValueTimestampHeaders(value, time, record.headers)
        self.context.get_state_store("table").put(key, entry)
        self.context.get_state_store("plain").put(key, entry)
        self.context.get_state_store("windows").put(key, entry, time // 10 * 10)
        session = Windowed(key, Window(time, time))
        self.context.get_state_store("sessions").put(session, AggregationWithHeaders(value, record.headers))


@pytest.fixture
def driver():
    stores = [
        Stores.timestamped_with_headers("table", **TEXT),
        Stores.timestamped_with_headers("plain", supplier="plain", **TEXT),
        Stores.window_with_headers("windows", size=10, retention=1_000_000, **TEXT),
        Stores.session_with_headers("sessions", retention=1_000_000, **TEXT),
    ]
    builder = StreamsBuilder()
    for store in stores:
        builder.add_state_store(store)
    builder.stream("in").process(Fill, [store.name for store in stores])
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        driver.input_topic("in").pipe("x", "a", 5, HEADERS)
        driver.input_topic("in").pipe("y", "b", 17)
        yield driver


def ask(driver, store, query, **how):
    return driver.query(StateQueryRequest(store, query, **how)).partition_results[0]


def test_records_of_a_key_value_store(driver):
    first, second = ReadOnlyRecord("a", "x", 5, HEADERS), ReadOnlyRecord("b", "y", 17)
    assert ask(driver, "table", TimestampedKeyWithHeadersQuery.with_key("a").skip_cache()).result == first
    assert ask(driver, "table", TimestampedKeyWithHeadersQuery.with_key("c")).result is None
    every = TimestampedRangeWithHeadersQuery.with_no_bounds()
    assert ask(driver, "table", every).result == [first, second]
    assert ask(driver, "table", every.with_descending_keys()).result == [second, first]
    assert ask(driver, "table", KeyQuery.with_key("a")).result == "x"
    assert ask(driver, "table", TimestampedKeyQuery.with_key("a")).result == ValueAndTimestamp("x", 5)
    assert ask(driver, "table", RangeQuery.with_lower_bound("b")).result == [("b", "y")]


def test_records_of_windows_and_sessions(driver):
    window = ReadOnlyRecord(Windowed("a", Window(0, 10)), "x", 5, HEADERS)
    by_key = TimestampedWindowKeyWithHeadersQuery.with_key_and_window_start_range("a", 0, 100)
    assert ask(driver, "windows", by_key).result == [window]
    in_range = TimestampedWindowRangeWithHeadersQuery.with_window_start_range(0, 9)
    assert ask(driver, "windows", in_range).result == [window]
    plain = WindowKeyQuery.with_key_and_window_start_range("a", 0, 100)
    assert ask(driver, "windows", plain).result == [(0, ValueAndTimestamp("x", 5))]
    session = ReadOnlyRecord(Windowed("a", Window(5, 5)), "x", 5, HEADERS)
    assert ask(driver, "sessions", TimestampedWindowRangeWithHeadersQuery.with_key("a")).result == [session]
    assert ask(driver, "sessions", WindowRangeQuery.with_key("a")).result == [(Windowed("a", Window(5, 5)), "x")]
    assert ask(driver, "sessions", in_range).failure_reason is FailureReason.UNKNOWN_QUERY_TYPE


def opened(driver, store, kind=None):
    return open_store(DriverState(driver), StoreQueryParameters(store, kind))


def test_stores_are_read_without_headers_unless_a_type_asks_for_them(driver):
    entry = ValueTimestampHeaders("x", 5, HEADERS)
    kinds = QueryableStoreTypes
    assert opened(driver, "table").get("a") == "x"
    assert list(opened(driver, "table").all()) == [("a", "x"), ("b", "y")]
    timed = opened(driver, "table", kinds.timestamped_key_value_store())
    assert timed.get("a") == ValueAndTimestamp("x", 5)
    assert [value for _, value in timed.range()] == [ValueAndTimestamp("x", 5), ValueAndTimestamp("y", 17)]
    assert opened(driver, "table", kinds.timestamped_key_value_store_with_headers()).get("a") == entry
    assert opened(driver, "windows").fetch("a", 0) == "x"
    assert opened(driver, "windows", kinds.timestamped_window_store_with_headers()).fetch("a", 0) == entry
    assert list(opened(driver, "sessions").fetch("a")) == [(Windowed("a", Window(5, 5)), "x")]
    sessions = opened(driver, "sessions", kinds.session_store_with_headers())
    assert sessions.fetch_session("a", 5, 5) == AggregationWithHeaders("x", HEADERS)
    with table() as other, pytest.raises(StateError, match="not a headers key-value store"):
        opened(other, "table", kinds.timestamped_key_value_store_with_headers())


def test_a_store_without_timestamps_has_no_records(driver):
    assert ask(driver, "plain", KeyQuery.with_key("a")).result == "x"
    for query in (TimestampedKeyWithHeadersQuery.with_key("a"), TimestampedRangeWithHeadersQuery.with_no_bounds()):
        answer = ask(driver, "plain", query)
        assert answer.failure_reason is FailureReason.STORE_EXCEPTION
        assert "timestamp -1" in answer.failure_message


def table(**facts):
    builder = StreamsBuilder()
    builder.table("in", materialized=Materialized("table", **facts))
    builder.table("other", materialized=Materialized("others"))
    return TopologyTestDriver(builder.build(), CONFIG)


def test_queries_with_headers_are_unknown_to_other_stores_and_a_null_key_or_a_time_that_ends_first_is_refused():
    with table() as driver:
        driver.input_topic("in").pipe("x", "a", 5)
        answer = ask(driver, "table", TimestampedKeyWithHeadersQuery.with_key("a"))
        assert answer.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE
    for query in (KeyQuery, TimestampedKeyQuery, TimestampedKeyWithHeadersQuery):
        with pytest.raises(StateError, match=f"key of a {query.__name__} is null"):
            query.with_key(None)
    with pytest.raises(StateError, match="ends before it begins"):
        MultiVersionedKeyQuery.with_key("a").from_time(9).to_time(5)


def test_a_versioned_store_refuses_plain_queries_as_kafka_does():
    with table(history="1 hour") as driver:
        for query in (KeyQuery.with_key("a"), RangeQuery.with_no_bounds()):
            with pytest.raises(StateError, match="keeps versions and does not support"):
                ask(driver, "table", query)


def test_each_store_has_the_position_of_its_own_writes():
    with table() as driver:
        for number in range(3):
            driver.input_topic("in").pipe(str(number), "a", number)
        driver.input_topic("other").pipe("x", "a", 9)
        assert ask(driver, "table", KeyQuery.with_key("a")).position == Position({"in": {0: 2}})
        assert ask(driver, "others", KeyQuery.with_key("a")).position == Position({"other": {0: 0}})
        for bound, reason in (
            ({"in": {0: 2}}, None),
            ({"in": {0: 3}}, FailureReason.NOT_UP_TO_BOUND),
            ({"other": {0: 0}}, FailureReason.NOT_UP_TO_BOUND),
            ({"in": {1: 7}}, None),
        ):
            answer = ask(driver, "table", KeyQuery.with_key("a"), bound=PositionBound.at(Position(bound)))
            assert answer.failure_reason is reason, bound


class Ask(Processor):
    """Puts a record, and asks for it at both isolation levels, in the middle of the record."""

    driver: TopologyTestDriver

    def process(self, record):
        store = self.context.get_state_store("kept")
        store.put(record.key, record.value)
        request = StateQueryRequest.in_store("kept").with_query(KeyQuery.with_key(record.key))
        seen = [
            self.driver.query(request.with_isolation_level(level)).partition_results[0].result
            for level in ("READ_UNCOMMITTED", "READ_COMMITTED")
        ]
        own = store.read_only("READ_COMMITTED").get(record.key)
        default = self.driver.query(request).partition_results[0].result
        self.context.forward(record.with_value(f"{own} {seen} {default}"))


@pytest.mark.parametrize("default", ["READ_UNCOMMITTED", "READ_COMMITTED"])
@pytest.mark.parametrize("is_transactional", [True, False])
@pytest.mark.parametrize("is_cached", [True, False])
def test_committed_state_is_read_apart_from_the_record_that_is_processed(is_transactional, is_cached, default):
    store = Stores.key_value("kept", **TEXT)
    builder = StreamsBuilder()
    builder.add_state_store(store.with_caching_enabled() if is_cached else store.with_caching_disabled())
    builder.stream("in").process(Ask, ["kept"]).to("out")
    settings = {
        "enable.transactional.statestores": is_transactional,
        "statestore.cache.max.bytes": 1_000_000 if is_cached else 0,
        "default.interactive.query.isolation.level": default,
    }
    with TopologyTestDriver(builder.build(), CONFIG | settings) as driver:
        Ask.driver = driver
        for value in ("x", "y", "z"):
            driver.input_topic("in").pipe(value, "a")
        is_apart = is_transactional and not is_cached
        before = [None, "x", "y"] if is_apart else ["x", "y", "z"]
        defaults = before if default == "READ_COMMITTED" else ["x", "y", "z"]
        assert driver.output_topic("out").read_values_to_list() == [
            f"{now} {[now, committed]} {by_default}"
            for now, committed, by_default in zip("xyz", before, defaults, strict=True)
        ]


def test_a_level_that_there_is_not_is_refused():
    with pytest.raises(StateError, match="no isolation level 'SERIALIZABLE'"):
        StateQueryRequest.in_store("table").with_isolation_level("SERIALIZABLE")
