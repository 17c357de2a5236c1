"""Stores that keep headers: their bytes, which are Kafka's, their changelogs, and the settings of the DSL's stores."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import Materialized, Processor, StreamsBuilder, TimeWindows, TopologyTestDriver
from penstock.api.stores import Stores
from penstock.config import StreamsConfig
from penstock.engines.application.planning import PlannedApp
from penstock.engines.threads.replicas.restoring import layout_of
from penstock.errors import ConfigError, StateError, TopologyError
from penstock.log.open import open_log
from penstock.serde import Serdes
from penstock.serde.windowed import Window, Windowed
from penstock.state.changelog import changelog_format
from penstock.state.maps import MemoryMap, TaskOverlay
from penstock.state.views import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders, open_view
from penstock.state.views.header_entries import (
    pack_headers,
    rows_without_headers,
    split_headers,
    unpack_headers,
    with_headers,
)
from penstock.topology.configured import with_settings
from penstock.topology.plan.evolution import compare
from penstock.topology.plan.plan import plan_of
from penstock.topology.plan.plan_json import StoredPlan, document_of, fingerprint_of

GOLDEN = json.loads((Path(__file__).parent / "data" / "headers_store_bytes.json").read_text(encoding="utf-8"))
TEXT = {"key_serde": "string", "value_serde": "string"}
CONFIG = {"application.id": "app", "statestore.cache.max.bytes": 0, "default.key.serde": "string"} | {
    "default.value.serde": "string"
}


def headers_of(case):
    return tuple((name, None if value is None else bytes.fromhex(value)) for name, value in case["headers"])


@pytest.mark.parametrize("case", GOLDEN["values"])
def test_entries_have_the_bytes_of_kafka(case):
    headers, value = headers_of(case), case["value"]
    stamped = case["timestamp"].to_bytes(8, "big") + value.encode()
    entry = bytes.fromhex(case["value_timestamp_headers"])
    assert pack_headers(headers) + stamped == entry
    found, end = unpack_headers(entry)
    assert (found, entry[end:]) == (headers, stamped)
    if "aggregation_with_headers" in case:
        assert pack_headers(headers) + value.encode() == bytes.fromhex(case["aggregation_with_headers"])


def test_columns_of_entries_are_those_one_by_one():
    cases = GOLDEN["values"] * 3
    bare = [case["timestamp"].to_bytes(8, "big") + case["value"].encode() for case in cases]
    entries = [bytes.fromhex(case["value_timestamp_headers"]) for case in cases]
    column = pa.array([*entries, None], pa.large_binary())
    assert rows_without_headers([*entries, None]) == [*bare, None]
    values, headers = split_headers(column)
    assert values.to_pylist() == [*bare, None]
    assert headers == [*map(headers_of, cases), ()]
    assert with_headers(values, headers).equals(column)


@pytest.mark.parametrize("case", GOLDEN["conversions"])
def test_entries_of_older_stores_become_those_without_headers(case):
    old = bytes.fromhex(case["old"])
    converted = with_headers(pa.array([old, None], pa.large_binary()))
    assert converted.to_pylist() == [bytes.fromhex(case["timestamped_to_headers"]), None]
    assert split_headers(converted)[0].to_pylist() == [old, None]


@pytest.mark.parametrize("entry", ["0a02026802", "04020268", "0e0202680231", "ffffffffff01"])
def test_headers_that_are_cut_short_are_an_error(entry):
    with pytest.raises(ValueError, match=r"cut short|that end after|more than"):
        unpack_headers(bytes.fromhex(entry))


def view_of(spec):
    state = TaskOverlay(0, {spec.name: MemoryMap()}, {})
    return open_view(spec, state.map(spec.name), state.meta), state


def spec_of(maker, **facts):
    return maker("s", key_serde=Serdes.string(), value_serde=Serdes.string(), **facts)


def test_a_key_value_store_returns_what_was_put():
    view, _ = view_of(spec_of(Stores.timestamped_with_headers))
    headers = (("h", b"1"), ("n", None))
    view.put("a", ValueTimestampHeaders("x", 5, headers))
    view.put("b", "y", 6)
    view.put_many([("c", ValueAndTimestamp("z", 7)), ("d", None)])
    assert view.get("a") == ("x", 5, headers)
    assert list(view.all()) == [("a", ("x", 5, headers)), ("b", ("y", 6, ())), ("c", ("z", 7, ()))]
    assert view.put_if_absent("a", "other", 9) == ("x", 5, headers)
    assert view.delete("b") == ("y", 6, ())
    assert view.get("b") is None
    with pytest.raises(StateError, match="no timestamp"):
        view.put("a", "x")


@pytest.mark.parametrize(("supplier", "shown"), [("timestamped", ("x", 5, ())), ("plain", ("x", -1, ()))])
def test_an_older_supplier_forgets_but_the_changelog_has_all(supplier, shown):
    spec = spec_of(Stores.timestamped_with_headers, supplier=supplier)
    view, state = view_of(spec)
    view.put("a", ValueTimestampHeaders("x", 5, (("h", b"1"),)))
    assert view.get("a") == shown
    (record,) = changelog_format(spec).records(state.sorted_changes()["s"], {}).to_pylist()
    assert record == {"timestamp": 5, "key": b"a", "value": b"x", "headers": [{"key": "h", "value": b"1"}]}


def test_a_supplier_that_there_is_not_is_refused():
    with pytest.raises(TopologyError, match="no supplier 'old'"):
        Stores.timestamped_with_headers("s", supplier="old")


class Keep(Processor):
    """Puts each record with its headers, and forwards what was there before."""

    def process(self, record):
        store = self.context.get_state_store("kept")
        before = store.get(record.key)
        store.put(record.key, record.value, record.timestamp, record.headers)
        self.context.forward(record.with_value(str(before and tuple(before))))


def kept(store, config=None):
    builder = StreamsBuilder()
    builder.add_state_store(store)
    builder.stream("in").process(Keep, ["kept"]).to("out")
    return TopologyTestDriver(builder.build(), CONFIG | (config or {}), changelogs=True)


def changelog(driver, store):
    records = []
    while (record := driver.read_raw(f"app-{store}-changelog")) is not None:
        records.append((record.key, record.value, record.timestamp, record.headers))
    return records


def test_a_processor_keeps_headers_and_the_changelog_has_those_of_deletions():
    with kept(Stores.timestamped_with_headers("kept", **TEXT)) as driver:
        topic = driver.input_topic("in")
        topic.pipe("x", "a", 5, {"h": "1"})
        topic.pipe("y", "a", 3, {"h": "2"})
        topic.pipe(None, "a", 4, {"h": "3"})
        assert driver.output_topic("out").read_values_to_list() == [
            "None",
            "('x', 5, (('h', b'1'),))",
            "('y', 3, (('h', b'2'),))",
        ]
        assert changelog(driver, "kept") == [
            (b"a", b"x", 5, (("h", b"1"),)),
            (b"a", b"y", 3, (("h", b"2"),)),
            (b"a", None, 4, (("h", b"3"),)),
        ]


def counts(config):
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(Materialized("counts")).to_stream().to("out")
    return builder.build(), StreamsConfig(CONFIG | config)


def test_the_format_of_the_dsl_keeps_no_headers_of_records_but_those_of_deletions():
    builder = StreamsBuilder()
    builder.table("in", materialized=Materialized("table"))
    for format_, deleted in (("HEADERS", (("h", b"2"),)), ("DEFAULT", ())):
        with TopologyTestDriver(builder.build(), CONFIG | {"dsl.store.format": format_}, changelogs=True) as driver:
            driver.input_topic("in").pipe("x", "a", 5, {"h": "1"})
            driver.input_topic("in").pipe(None, "a", 6, {"h": "2"})
            assert changelog(driver, "table") == [(b"a", b"x", 5, ()), (b"a", None, 6, deleted)]
            driver.input_topic("in").pipe("y", "a", 7)
            assert driver.store("table").get("a")[:2] == ("y", 7)


def test_headers_are_for_stores_on_disk_and_the_settings_say_which_those_are():
    topology, config = counts({"dsl.store.format": "headers"})
    assert with_settings(topology, config).stores["counts"].keeps_headers
    in_memory = "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers"
    for setting, value in (("dsl.store.suppliers.class", in_memory), ("default.dsl.store", "in_memory")):
        topology, config = counts({"dsl.store.format": "HEADERS", setting: value})
        store = with_settings(topology, config).stores["counts"]
        assert (store.persistent, store.keeps_headers) == (False, False)
    with pytest.raises(ConfigError, match="InMemoryDslStoreSuppliers"):
        counts({"dsl.store.suppliers.class": "com.example.OwnSuppliers"})
    builder = StreamsBuilder()
    builder.table("in", materialized=Materialized("chosen", store_type="rocksdb"))
    chosen = with_settings(builder.build(), StreamsConfig(CONFIG | {"default.dsl.store": "in_memory"}))
    assert chosen.stores["chosen"].persistent


def test_a_store_with_rows_does_not_change_its_format():
    def document(config):
        topology, config = counts(config)
        with open_log("memory://formats") as log:
            return PlannedApp(topology, config, plan_of(topology, "app", {"in": 1, "out": 1}), log).document

    was, now = document({}), document({"dsl.store.format": "HEADERS"})
    for before, after, kept in ((was, now, "no headers"), (now, was, "headers")):
        verdict = compare(StoredPlan(before), after)
        assert verdict.verdict == "refuse"
        assert f"was kept with {kept}" in verdict.reasons[0]
    assert compare(StoredPlan(now), now).verdict == "same"
    in_memory = {"dsl.store.format": "HEADERS", "default.dsl.store": "in_memory"}
    assert document(in_memory) == was, "their rows have no headers"


def test_plans_and_layouts_of_stores_without_headers_are_those_of_earlier_versions():
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.group_by_key().count(Materialized("counts"))
    stream.group_by_key().windowed_by(TimeWindows.of("1 minute")).count(Materialized("windows"))
    builder.global_table("names", materialized=Materialized("names-store"))
    topology = builder.build()
    plan = plan_of(topology, "app", {"in": 1, "names": 1})
    assert fingerprint_of(document_of(plan, topology, StreamsConfig(CONFIG))) == "6d9f7245b78c65bf888c7d24"
    layouts = {name: layout_of(spec) for name, spec in with_settings(topology, StreamsConfig(CONFIG)).stores.items()}
    assert layouts == {
        "counts": "timestamped True 0 0 False 0 0 True False",
        "windows": "window True 60000 60000 False 0 0 True False",
        "names-store": "timestamped True 0 0 False 0 0 True False",
    }


def test_a_global_table_may_change_its_format_as_its_topic_is_read_again():
    builder = StreamsBuilder()
    builder.global_table("in", materialized=Materialized("table"))
    builder.stream("lines").to("out")
    topology = builder.build()
    plan = plan_of(topology, "app", {"in": 1, "lines": 1})
    plain, kept = (
        document_of(plan, topology, StreamsConfig(CONFIG | {"dsl.store.format": each}))
        for each in ("DEFAULT", "HEADERS")
    )
    assert plain == kept


def test_sessions_have_headers_of_their_own():
    spec = spec_of(Stores.session_with_headers, retention=100_000)
    view, state = view_of(spec)
    session = Windowed("a", Window(1, 5))
    view.put(session, AggregationWithHeaders("x", (("h", b"1"),)))
    assert view.fetch_session("a", 1, 5) == ("x", (("h", b"1"),))
    (record,) = changelog_format(spec).records(state.sorted_changes()["s"], {}).to_pylist()
    assert (record["value"], record["headers"]) == (b"x", [{"key": "h", "value": b"1"}])


def test_a_window_of_duplicates_fetches_the_value_that_was_put_last():
    spec = spec_of(Stores.window_with_headers, retention=10_000, size=1_000, retain_duplicates=True)
    view, _ = view_of(spec)
    view.put("a", ValueTimestampHeaders("x", 5), 0)
    view.put("a", ValueTimestampHeaders("y", 6, (("h", b"1"),)), 0)
    assert view.fetch("a", 0) == ("y", 6, (("h", b"1"),))
    view.put("b", ValueTimestampHeaders("z", 7), 0)
    assert view.fetch("a", 0) is None
    assert [entry.value for _, entry in view.fetch_range("a", 0, 0)] == ["x", "y"]
