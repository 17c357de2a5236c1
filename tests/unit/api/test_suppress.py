"""What suppress() and cogroup() refuse, and the names that they give."""

from __future__ import annotations

import pytest

from penstock import BufferConfig, Materialized, StreamsBuilder, Suppressed, TimeWindows, agg
from penstock.errors import TopologyError


def test_a_suppressed_table_needs_windows_that_can_close():
    table = StreamsBuilder().table("in")
    with pytest.raises(TopologyError, match="there are no windows in root -> KTABLE-SOURCE"):
        table.suppress(Suppressed.until_window_closes())


def test_final_results_cannot_go_early():
    with pytest.raises(TopologyError, match="not final"):
        Suppressed.until_window_closes(BufferConfig.max_records(10))


def test_a_versioned_table_cannot_be_suppressed():
    table = StreamsBuilder().table("in", materialized=Materialized("t", history="1 hour"))
    with pytest.raises(TopologyError, match="cannot buffer a versioned table"):
        table.filter(lambda value: value).suppress(Suppressed.until_time_limit(1))


def test_the_grace_is_found_through_filters_and_cogroups():
    builder = StreamsBuilder()
    first, second = (builder.stream(topic).group_by_key() for topic in ("one", "two"))
    cogrouped = first.cogroup(agg.count()).cogroup(second, agg.count())
    table = cogrouped.windowed_by(TimeWindows.of(10, grace=7)).aggregate()
    table.filter(lambda value: value).suppress(Suppressed.until_window_closes(), name="final")
    topology = builder.build()
    assert topology.nodes["final"].operation.wait_ms == 7
    assert topology.nodes["final"].stores == ("final-store",)


def test_all_streams_of_a_cogroup_have_the_store():
    builder = StreamsBuilder()
    first, second = (builder.stream(topic).group_by_key() for topic in ("one", "two"))
    first.cogroup(agg.count()).cogroup(second, agg.count()).aggregate(None, "counts", name="all")
    nodes = builder.build().nodes
    assert [name for name in nodes if getattr(nodes[name], "stores", ()) == ("counts",)] == [
        "all-cogroup-agg-0",
        "all-cogroup-agg-1",
    ]
    assert nodes["all-cogroup-merge"].parents == ("all-cogroup-agg-0", "all-cogroup-agg-1")


def test_a_mean_has_no_place_in_a_cogroup():
    grouped = StreamsBuilder().stream("in").group_by_key()
    with pytest.raises(TopologyError, match=r"agg\.sum\(\) and agg\.count\(\)"):
        grouped.cogroup(agg.mean())


def test_a_struct_has_parts():
    with pytest.raises(TopologyError, match="'n' is not one"):
        agg.struct(n=len)
