"""The picture of a topology beside the ids that its sub-topologies kept from an earlier version."""

from __future__ import annotations

from dataclasses import replace

from penstock import StreamsBuilder
from penstock.console.topology_drawing import drawing_of
from penstock.topology.plan.plan import plan_of


def test_a_sub_topology_that_kept_its_id_has_the_names_of_its_tasks_and_its_own_reason():
    builder = StreamsBuilder()
    builder.stream("a").to("b")
    builder.stream("c").to("d")
    topology = builder.build()
    plan = plan_of(topology, "app", {"a": 1, "c": 1})
    first, second = plan.subtopologies
    kept = replace(plan, subtopologies=(replace(first, id=3), replace(second, id=0)))

    groups = drawing_of(topology, kept, {3: "calls a function", 0: None})["groups"]

    assert groups == [
        {"id": 0, "title": "Sub-topology: 0, tasks 3_*", "sliced": "calls a function"},
        {"id": 1, "title": "Sub-topology: 1, tasks 0_*", "sliced": None},
    ]
    assert [each["title"] for each in drawing_of(topology, plan)["groups"]] == ["Sub-topology: 0", "Sub-topology: 1"]
