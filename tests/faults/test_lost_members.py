"""A member that its group does not know any more: another program has removed it, or the coordinator has lost records."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from brokers import running_broker
from eventually import eventually
from penstock.errors import FencedError
from penstock.log.base import TopicPartition
from penstock.log.kafka.transactions.group_presence import expel
from penstock.log.open import open_log
from penstock.tools.broker.process import Broker

PATIENCE_S = 120
PLACE = TopicPartition("in", 0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("broker"), {"ann": "secret"}, acls=True) as running:
        with open_log(running.settings.bootstrap_servers) as log:
            log.create_topic(PLACE.topic, 1)
        yield running


def of_ann(broker: Broker, application: str) -> dict[str, str]:
    """Grant a user the rights that an application needs, and return the settings of its clients."""
    rights = [
        (ResourceType.TOPIC, "in", "READ"),
        *((ResourceType.TOPIC, f"{application}-", each) for each in ("CREATE", "READ", "WRITE", "DELETE")),
        (ResourceType.GROUP, application, "READ"),
        (ResourceType.TRANSACTIONAL_ID, f"{application}-", "WRITE"),
    ]
    rules = [
        AclBinding(
            kind, name, ResourcePatternType.PREFIXED, "User:ann", "*", AclOperation[each], AclPermissionType.ALLOW
        )
        for kind, name, each in rights
    ]
    admin = AdminClient({"bootstrap.servers": broker.settings.bootstrap_servers})
    for future in admin.create_acls(rules).values():
        future.result(PATIENCE_S)
    return {
        "bootstrap.servers": f"127.0.0.1:{broker.settings.sasl_port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="ann" password="secret";',
    }


def wait_for_end(log: Any) -> None:
    """Wait until the application learns that it is a member no longer."""

    def end() -> FencedError | None:
        try:
            log.membership(1)
        except FencedError as error:
            return error
        return None

    assert "removed" in eventually(end, PATIENCE_S).message


@pytest.mark.parametrize("has_committed", [True, False])
def test_a_member_that_another_program_removes_does_not_join_again(broker: Broker, has_committed: bool) -> None:
    servers, name = broker.settings.bootstrap_servers, f"app-{uuid.uuid4().hex[:6]}"
    with open_log(servers) as opened, open_log(servers) as other:
        log: Any = opened
        lease = log.acquire_lease(name, "me")
        log.commit_offsets(name, {PLACE: 5}, "a note")
        log.show_as_member(lease, ["in"])
        assert log.membership(PATIENCE_S) is not None
        if has_committed:
            log.commit_offsets(name, {PLACE: 9}, "a note", lease)
        expel(other.clients, name)
        other.commit_offsets(name, {PLACE: 0})  # as Kafka's tools do, without metadata
        wait_for_end(log)
        assert other.group_state(name).members == ()
        with pytest.raises(FencedError, match="removed"):
            log.commit_offsets(name, {PLACE: 10}, "a note", lease)
        assert other.committed_offsets(name) == {PLACE: 0}


@pytest.mark.parametrize(
    "sees", ["the coordinator's log", pytest.param("the group's offsets", marks=pytest.mark.whole)]
)
def test_a_member_that_its_coordinator_has_forgotten_with_its_newest_records_joins_again(
    broker: Broker, tmp_path: Path, sees: str
) -> None:
    """A broker that a power cut has taken, or an unclean election of the coordinator."""
    data, name = Path(broker.settings.directory) / "data", f"forgotten-{uuid.uuid4().hex[:6]}"
    settings = {"bootstrap.servers": broker.settings.bootstrap_servers}
    if sees == "the group's offsets":  # as this user may not describe the topic of the groups
        settings = of_ann(broker, name)
    with open_log(settings["bootstrap.servers"], settings) as opened:
        log: Any = opened
        lease = log.acquire_lease(name, "me")
        log.commit_offsets(name, {PLACE: 5}, "a note")
        broker.stop()
        groups = [folder.name for folder in data.glob("__consumer_offsets-*")]
        assert groups
        for each in groups:
            shutil.copytree(data / each, tmp_path / each)
        broker.start()
        log.show_as_member(lease, ["in"])
        before = log.membership(PATIENCE_S)
        assert before is not None
        for offset in range(7, 10) if sees == "the group's offsets" else ():  # else it is idle
            log.commit_offsets(name, {PLACE: offset}, "a note", lease)
        broker.stop(kill=True)
        for each in groups:
            shutil.rmtree(data / each)
            shutil.copytree(tmp_path / each, data / each)
        broker.start()
        eventually(lambda: log.membership(1) not in (None, before), PATIENCE_S)
        log.commit_offsets(name, {PLACE: 10}, "a note", lease)
        assert log.committed_offsets(name) == {PLACE: 10}
        log.release_lease(lease)
