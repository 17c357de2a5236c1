"""Groups of stream threads (``group.protocol=streams``) as the commands show them."""

from __future__ import annotations

import json
import socket
import struct
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eventually import eventually
from penstock.cli.main import app
from penstock.errors import FencedError
from penstock.log.groups.group_admin import GroupAdmin
from penstock.log.kafka.log import KafkaLog
from penstock.tools.broker.process import Broker

_HEARTBEAT, _NULL, _NONE, _TAGS = 88, b"\0", b"\1", b"\0"


def _text(value: str) -> bytes:
    return bytes((len(value) + 1,)) + value.encode()


def join(broker: Broker, group: str, member: str, topic: str) -> None:
    """Join as Kafka Streams does, with a topology of one sub-topology that reads one topic."""
    subtopology = b"".join((_text("0"), b"\2", _text(topic), 5 * _NONE, _TAGS))
    body = b"".join((
        _text(group), _text(member), struct.pack(">ii", 0, -1), 2 * _NULL, struct.pack(">i", 300_000),
        b"\1", struct.pack(">i", 0), b"\2", subtopology, _TAGS, 3 * _NONE, _text("process"), b"\xff", _NONE,
        2 * _NULL, b"\0", _TAGS,
    ))  # fmt: skip
    client = b"java-client"
    head = struct.pack(">hhih", _HEARTBEAT, 0, 1, len(client)) + client + _TAGS
    with socket.create_connection(("127.0.0.1", broker.settings.port), 10) as connection:
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        assert connection.recv(1 << 16)


@pytest.fixture
def group(kafka: Broker) -> str:
    """A group with one member, which has two tasks."""
    name = f"streams-{uuid.uuid4().hex[:8]}"
    with KafkaLog(kafka.settings.bootstrap_servers) as log:
        log.create_topic(f"{name}-in", 2)

        def has_tasks() -> bool:
            join(kafka, name, "member-1", f"{name}-in")  # again gives it its place back
            return any(each.owned for each in log.group_state(name).members)

        eventually(has_tasks)
    return name


@pytest.fixture
def run(kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["groups", *arguments, "-b", kafka.settings.bootstrap_servers])
        assert done.exit_code == 0, done.output
        return done.stdout

    return invoke


def test_a_group_of_stream_threads_is_listed_and_described(group: str, run: Callable[..., str]) -> None:
    listed = {each["group"]: each for each in json.loads(run("list", "--json"))}
    assert (listed[group]["state"], listed[group]["members"]) == ("Stable", 1)
    described = json.loads(run("describe", group, "--json"))
    [member] = described["members"]
    assert (member["member"], member["client"], member["host"]) == ("member-1", "java-client", "127.0.0.1")
    assert member["owned"] == [{"topic": f"{group}-in", "partition": number} for number in (0, 1)]
    assert member["tasks"] == [["active", ["0_0", "0_1"]], ["standby", []], ["warmup", []]]
    assert [(row["partition"], row["committed"]) for row in described["partitions"]] == [(0, None), (1, None)]


def test_members_are_shown_with_their_tasks(group: str, run: Callable[..., str]) -> None:
    shown = run("describe", group, "--members")
    assert f"group {group}: Stable, 1 member" in shown
    assert "0_0, 0_1" in shown
    assert "member-1" in shown


def test_a_group_with_members_is_not_reset(group: str, kafka: Broker) -> None:
    with KafkaLog(kafka.settings.bootstrap_servers) as log, pytest.raises(FencedError, match="has 1 member"):
        GroupAdmin(log).reset(group, [])
