"""The topologies that Kafka Streams 4.3.1 sends in heartbeats of the streams group protocol, field by field."""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from heartbeat_topologies import OWN, SETTINGS, build
from interpreter import interpret
from penstock.config import StreamsConfig
from penstock.log.kafka.wire.streams_groups import heartbeat_request
from penstock.log.streams_groups.description import (
    Assignment,
    CopartitionGroup,
    Endpoint,
    GroupSubtopology,
    GroupTopology,
    InternalTopicSpec,
    StreamsHeartbeat,
    Tags,
)
from penstock.topology.plan.group_topology import group_topology
from penstock.topology.topology import Topology
from run import load

RECORDED: dict[str, Any] = json.loads(lzma.decompress(Path(__file__).with_name("heartbeats.json.xz").read_bytes()))
CASES = {case["file"]: case for case in load(Path(__file__).with_name("cases.tar.xz"))}
# Java's client loses sight of the sources of suppressed tables and of repartitioned streams that are cogrouped, so it
# names other co-partition groups.
OTHER_GROUPS = frozenset({
    "fuzz__s13", "fuzz__s143", "fuzz__s15", "fuzz__s32", "fuzz__s40", "fuzz__s53", "fuzz__s60", "fuzz__s61",
    "fuzz__s74", "fuzz__s75", "fuzz__s9",
})  # fmt: skip


def ours(topology: Topology, application: str, settings: dict[str, Any]) -> GroupTopology:
    known = {name: value for name, value in settings.items() if not name.startswith("__")}
    return group_topology(topology, application, StreamsConfig({**known, "application.id": application}))


def specs(given: list[Any]) -> tuple[InternalTopicSpec, ...]:
    return tuple(
        InternalTopicSpec(each["name"], each["partitions"], each["replication_factor"], pairs(each["topic_configs"]))
        for each in given
    )


def pairs(given: list[Any]) -> Tags:
    return tuple((each["key"], each["value"]) for each in given)


def java(recorded: dict[str, Any], *, with_groups: bool = True) -> GroupTopology:
    return GroupTopology(
        tuple(
            GroupSubtopology(
                id=each["subtopology_id"],
                source_topics=tuple(each["source_topics"]),
                source_patterns=tuple(each["source_topic_regex"]),
                changelogs=specs(each["state_changelog_topics"]),
                repartition_sinks=tuple(each["repartition_sink_topics"]),
                repartition_sources=specs(each["repartition_source_topics"]),
                copartition_groups=tuple(
                    CopartitionGroup(
                        tuple(group["source_topics"]),
                        tuple(group["source_topic_regex"]),
                        tuple(group["repartition_source_topics"]),
                    )
                    for group in each["copartition_groups"]
                    if with_groups
                ),
            )
            for each in recorded["subtopologies"]
        ),
        recorded["epoch"],
    )


@pytest.mark.parametrize("name", OWN)
def test_own_topologies(name: str) -> None:
    application = f"own-{name}"
    assert ours(build(name), application, SETTINGS.get(name, {})) == java(RECORDED["own"][name]["request"]["topology"])


def test_topologies_of_the_recorded_cases() -> None:
    different = []
    for name, recorded in RECORDED["cases"].items():
        case = interpret(CASES[name])
        found, expected = ours(case.topology, recorded["application"], case.config), java(recorded["topology"])
        if found != expected:
            different.append(name)
        if name in OTHER_GROUPS:
            plain = java(recorded["topology"], with_groups=False)
            assert [(each.id, each.source_topics, each.changelogs) for each in found.subtopologies] == [
                (each.id, each.source_topics, each.changelogs) for each in plain.subtopologies
            ], name
    assert set(different) == OTHER_GROUPS
    assert len(RECORDED["cases"]) > 300


@pytest.mark.parametrize("name", [*OWN, "client-settings"])
def test_the_first_heartbeat_byte_for_byte(name: str) -> None:
    recorded = RECORDED["own"][name]
    request = recorded["request"]
    endpoint = request["user_endpoint"]
    heartbeat = StreamsHeartbeat(
        group=request["group_id"],
        member=request["member_id"],
        epoch=0,
        rack=request["rack_id"],
        rebalance_timeout_ms=request["rebalance_timeout_ms"],
        topology=java(request["topology"]),
        owned=Assignment(),
        process=request["process_id"],
        endpoint=None if endpoint is None else Endpoint(endpoint["host"], endpoint["port"]),
        tags=pairs(request["client_tags"]),
    )
    assert bytes(heartbeat_request(heartbeat).encode(version=0)).hex() == recorded["bytes"]
