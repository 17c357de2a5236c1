"""Kafka's own command line tool sees where an application is, and moves it."""

from __future__ import annotations

import subprocess
from typing import Any

from penstock import Materialized, StreamsBuilder
from penstock.broker.jars import KAFKA_VERSION, broker_jars, fetch_jars, java_command

from .conftest import Bench, long

GROUP = "seen-by-tools"


def consumer_groups(bench: Bench, *options: str) -> list[dict[str, str]]:
    """The rows that kafka-consumer-groups prints, by its own column heads."""
    tools = fetch_jars(
        f"kafka-tools-{KAFKA_VERSION}", [("org.apache.kafka", "kafka-tools", KAFKA_VERSION)], transitive=False
    )
    command = [
        java_command(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{tools}/*:{broker_jars()}/*",
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", bench.url, *options,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
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
    assert seen == {("tooled", "0"): ("3", "3", "0"), ("tooled", "1"): ("1", "1", "0")}

    moved = consumer_groups(
        bench, "--reset-offsets", "--execute", "--group", GROUP, "--topic", "tooled:0", "--to-offset", "1"
    )
    assert [(row["TOPIC"], row["PARTITION"], row["NEW-OFFSET"]) for row in moved] == [("tooled", "0", "1")]
    bench.run(topology, **settings)  # the second "a" and "b" once more, on the state as it was
    assert dict(bench.read("tooled-counts", long)) == {"a": 4, "b": 2}
