"""Kafka's own command line tool sees where an application is, and moves it."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from eventually import eventually
from penstock import Materialized, StreamsBuilder
from penstock.base.jars import KAFKA_VERSION, broker_jars, fetch_jars, java_command
from penstock.config import StreamsConfig
from penstock.engines.reset import ApplicationReset
from penstock.errors import FencedError, LogError
from penstock.log.base import TopicPartition
from penstock.log.groups.group_admin import GroupAdmin
from penstock.log.groups.reset_targets import Target
from penstock.log.open import open_log

from .conftest import Bench, long

GROUP = "seen-by-tools"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
RESET = "org.apache.kafka.tools.StreamsResetter"


def tool(bench: Bench, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's own tools."""
    tools = fetch_jars(
        f"kafka-tools-{KAFKA_VERSION}", [("org.apache.kafka", "kafka-tools", KAFKA_VERSION)], transitive=False
    )
    whole = [
        java_command(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{tools}/*:{broker_jars()}/*",
        *command, "--bootstrap-server", bench.url,
    ]  # fmt: skip
    return subprocess.run(whole, capture_output=True, text=True, timeout=240, check=False)


def consumer_groups(bench: Bench, *options: str) -> list[dict[str, str]]:
    """The rows that kafka-consumer-groups prints, by its own column heads."""
    done = tool(bench, GROUPS, *options)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
    head = next((n for n, words in enumerate(lines) if words[0] == "GROUP"), None)
    assert head is not None, done.stdout + done.stderr
    return [dict(zip(lines[head], words, strict=False)) for words in lines[head + 1 :]]


def test_kafkas_tool_sees_and_moves_the_offsets_of_an_application(kafka_bench: Bench) -> None:
    builder = StreamsBuilder()
    builder.stream("tooled").group_by(lambda _, word: word).count(Materialized("words")).to_stream().to("tooled-counts")
    topology, settings = builder.build(), {"application.id": GROUP}
    bench: Any = kafka_bench
    bench.log.create_topic("tooled", 2)
    bench.log.create_topic("tooled-counts", 1)
    bench.write("tooled", [("k", "a", 0), ("k", "a", 1), ("k", "b", 2)], 0)
    bench.write("tooled", [("k", "a", 0)], 1)
    bench.run(topology, **settings)

    rows = consumer_groups(bench, "--describe", "--group", GROUP)
    seen = {
        (row["TOPIC"], row["PARTITION"]): (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in rows
    }
    of_source = {place: offsets for place, offsets in seen.items() if place[0] == "tooled"}
    assert of_source == {("tooled", "0"): ("3", "3", "0"), ("tooled", "1"): ("1", "1", "0")}
    assert {topic for topic, _ in seen} == {"tooled", f"{GROUP}-words-repartition"}

    moved = consumer_groups(
        bench, "--reset-offsets", "--execute", "--group", GROUP, "--topic", "tooled:0", "--to-offset", "1"
    )
    assert [(row["TOPIC"], row["PARTITION"], row["NEW-OFFSET"]) for row in moved] == [("tooled", "0", "1")]
    bench.run(topology, **settings)  # the second "a" and "b" once more, on the state as it was
    assert dict(bench.read("tooled-counts", long)) == {"a": 4, "b": 2}


def test_kafkas_tools_take_a_running_application_for_what_it_is(kafka_bench: Bench) -> None:
    bench, group = kafka_bench, "runs-for-tools"
    bench.log.create_topic("running", 2)
    bench.write("running", [("k", "a", 0), ("k", "b", 1)], 0)
    builder = StreamsBuilder()
    builder.stream("running").group_by(lambda _, word: word).count(Materialized("words"))
    app = bench.app(builder.build(), **{"application.id": group})
    app.start()
    try:
        eventually(lambda: bench.log.committed_offsets(group).get(TopicPartition("running", 0)) == 2)
        rows = consumer_groups(bench, "--describe", "--group", group)
        topics = ("running", f"{group}-words-repartition")
        assert {(row["TOPIC"], row["PARTITION"], row["HOST"]) for row in rows} == {
            (topic, partition, "/127.0.0.1") for topic in topics for partition in "01"
        }
        assert {row["LAG"] for row in rows if row["TOPIC"] == "running"} == {"0"}
        seen = GroupAdmin(bench.log).describe(group)
        assert (seen.state, len(seen.members), len(seen.members[0].owned)) == ("Stable", 1, 4)
        moving = tool(bench, GROUPS, "--reset-offsets", "--execute", "--group", group, "--all-topics", "--to-earliest")
        assert "Assignments can only be reset if the group" in moving.stdout + moving.stderr
        deleting = tool(bench, GROUPS, "--delete-offsets", "--group", group, "--topic", "running")
        assert "Successful" not in deleting.stdout
        assert "actively subscribed" in deleting.stdout + deleting.stderr
        resetting = tool(bench, RESET, "--application-id", group, "--input-topics", "running")
        assert resetting.returncode != 0
        assert "is still active" in resetting.stdout + resetting.stderr
        with pytest.raises(FencedError, match="runs already"), GroupAdmin(bench.log).stopped(group):
            pass
        bench.write("running", [("k", "c", 2)], 0)
        eventually(lambda: bench.log.committed_offsets(group).get(TopicPartition("running", 0)) == 3)
    finally:
        app.close()
    assert bench.log.group_state(group).state == "Empty"
    assert any(name.endswith("words-changelog") for name in (each.name for each in bench.log.topics()))


def test_the_member_of_an_application_that_was_killed_is_taken_out(kafka_bench: Bench) -> None:
    log, group = kafka_bench.log, "killed-member"
    log.create_topic("killed", 1)
    dead = open_log(kafka_bench.url)
    dead.show_as_member(dead.acquire_lease(group, "dead", ttl_ms=1), ["killed"])
    dead.commit_offsets(group, {TopicPartition("killed", 0): 1})  # waits until it is a member
    assert len(log.group_state(group).members) == 1
    with pytest.raises(LogError):
        log.commit_offsets(group, {TopicPartition("killed", 0): 2})
    time.sleep(0.01)  # the lease of 1 ms
    with GroupAdmin(log).stopped(group):
        log.commit_offsets(group, {TopicPartition("killed", 0): 3})
    dead.close()
    assert log.group_state(group).members == ()


def test_after_kafkas_reset_an_application_begins_anew(kafka_bench: Bench) -> None:
    bench, settings = kafka_bench, {"application.id": "reset-by-tool"}
    builder = StreamsBuilder()
    builder.stream("reset-in").group_by(lambda _, word: word).count(Materialized("words")).to_stream().to("reset-out")
    bench.log.create_topic("reset-in", 2)
    bench.log.create_topic("reset-out", 1)
    bench.write("reset-in", [("k", "a", 0), ("k", "a", 1), ("k", "b", 2)], 0)
    bench.run(builder.build(), **settings)
    done = tool(bench, RESET, "--application-id", "reset-by-tool", "--input-topics", "reset-in")
    assert done.returncode == 0, done.stdout + done.stderr
    bench.run(builder.build(), **settings)
    assert sorted(bench.read("reset-out", long)) == sorted(2 * [("a", 2), ("b", 1)])


def counting(bench: Bench, name: str) -> Any:
    bench.log.create_topic(f"{name}-in", 2)
    bench.log.create_topic(f"{name}-out", 1)
    builder = StreamsBuilder()
    counts = builder.stream(f"{name}-in").group_by(lambda _, word: word).count(Materialized("words"))
    counts.to_stream().to(f"{name}-out")
    return builder.build()


def test_offsets_of_repartition_topics_stay_while_the_application_runs(kafka_bench: Bench) -> None:
    bench, group = kafka_bench, "reads-repartition"
    topology, settings = counting(bench, group), {"application.id": group, "processing.mode": "continuous"}
    bench.write(f"{group}-in", [("k", "a", 0), ("k", "b", 1)], 0)
    repartition = f"{group}-words-repartition"
    app = bench.app(topology, **settings)
    app.start()
    try:
        eventually(lambda: sum(at for tp, at in bench.log.committed_offsets(group).items() if tp.topic == repartition))
        before = bench.log.committed_offsets(group)
        rows = consumer_groups(bench, "--describe", "--group", group)
        assert {(row["TOPIC"], row["HOST"]) for row in rows} == {
            (f"{group}-in", "/127.0.0.1"),
            (repartition, "/127.0.0.1"),
        }
        for topic in (repartition, f"{group}-in"):
            deleting = tool(bench, GROUPS, "--delete-offsets", "--group", group, "--topic", topic)
            assert "actively subscribed" in deleting.stdout + deleting.stderr
        assert bench.log.committed_offsets(group).keys() == before.keys()
        bench.write(f"{group}-in", [("k", "c", 2)], 1)  # it goes on
        eventually(lambda: dict(bench.read(f"{group}-out", long)).get("c") == 1)
    finally:
        app.close()


def reset_by_kafka(bench: Bench, topology: Any, settings: dict[str, Any], topic: str) -> None:
    done = tool(bench, RESET, "--application-id", settings["application.id"], "--input-topics", topic, "--force")
    assert done.returncode == 0, done.stdout + done.stderr


def reset_by_penstock(bench: Bench, topology: Any, settings: dict[str, Any], topic: str) -> None:
    config = StreamsConfig(bench.config(**settings))
    with open_log(bench.url) as log:
        reset = ApplicationReset(log, config, topology, without_checkpoint=True)
        reset.run(reset.plan(Target.earliest(), [topic]), force=True)


@pytest.mark.parametrize(
    ("reset", "mode", "message"),
    [
        (reset_by_kafka, "continuous", r"removed application .* from its group"),
        (reset_by_kafka, "micro_batch", r"removed application .* from its group"),
        (reset_by_penstock, "continuous", r"taken over"),
    ],
)
def test_a_forced_reset_of_a_running_application_is_whole(
    kafka_bench: Bench, reset: Callable[..., None], mode: str, message: str
) -> None:
    bench, group = kafka_bench, f"forced-{mode.replace('_', '-')}-{reset.__name__.rpartition('_')[2]}"
    topology, settings = counting(bench, group), {"application.id": group, "processing.mode": mode}
    rows = [("k", word, number) for number, word in enumerate("aabac")]
    bench.write(f"{group}-in", rows, 0)
    app = bench.app(topology, **settings)
    app.start()
    writes = threading.Event()

    def go_on() -> None:  # commits are on their way all the time
        number = 0
        while not writes.wait(0.02):
            number += 1
            bench.write(f"{group}-in", [("k", "more", number)], 1)

    writer = threading.Thread(target=go_on)
    try:
        eventually(lambda: dict(bench.read(f"{group}-out", long)).get("a") == 3)
        writer.start()
        eventually(lambda: dict(bench.read(f"{group}-out", long)).get("more", 0) > 3)
        reset(bench, topology, settings, f"{group}-in")
        with pytest.raises(FencedError, match=message):
            app.wait(120_000)
    finally:
        writes.set()
        writer.join()
        app.close()
    offsets = {tp: at for tp, at in bench.log.committed_offsets(group).items() if tp.topic == f"{group}-in"}
    assert set(offsets.values()) == {0}  # as the tool has set them: nothing was committed since
    written = len(bench.read(f"{group}-in"))
    bench.run(topology, **settings)  # begins anew, and reads all
    counts = dict(bench.read(f"{group}-out", long))
    assert counts == {"a": 3, "b": 1, "c": 1, "more": written - 5}
