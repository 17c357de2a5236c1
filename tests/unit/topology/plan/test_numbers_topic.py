"""The topic of the tasks' numbers."""

from __future__ import annotations

from penstock import Materialized, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.topology.plan.internal_topics import changelogs_of
from penstock.topology.plan.plan import plan_of


def test_it_is_compacted_in_small_segments_whatever_holds_for_other_topics() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(Materialized("counts")).to_stream().to("out")
    given = {"application.id": "app", "bootstrap.servers": "memory://none", "topic.segment.bytes": str(1 << 30)}
    plan = plan_of(builder.build(), "app", {"in": 2, "out": 2})
    counts, numbers = changelogs_of(builder.build(), plan, StreamsConfig(given))
    assert counts.config["segment.bytes"] == str(1 << 30)
    assert (numbers.config["segment.bytes"], numbers.config["cleanup.policy"]) == ("1048576", "compact")
