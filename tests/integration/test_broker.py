"""A real broker, started and stopped by `penstock broker`: its listeners, its data, and what goes wrong."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from brokers import running_broker
from eventually import eventually
from penstock.cli.servers.broker import app
from penstock.errors import ConfigError, EnvironmentProblemError, InvalidStateError
from penstock.tools.broker.broker_settings import BrokerSettings, free_port, is_taken
from penstock.tools.broker.process import Broker

PATIENCE_S = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    users = {"alice": "wonder", "admin": "secret"}
    with running_broker(tmp_path_factory.mktemp("broker"), users, acls=True) as running:
        yield running


def connection(broker: Broker, how: str, user: str = "admin", password: str = "secret") -> dict[str, str]:
    """Settings of a client at one of the listeners."""
    if how == "plain":
        return {"bootstrap.servers": broker.settings.bootstrap_servers}
    listeners = broker.settings.listeners()
    if how == "tls":
        certificates = broker.settings.certificates
        return {
            "bootstrap.servers": f"127.0.0.1:{listeners['SSL']}",
            "security.protocol": "ssl",
            "ssl.ca.location": str(certificates / "ca.pem"),
            "ssl.certificate.location": str(certificates / "client.pem"),
            "ssl.key.location": str(certificates / "client.pem"),
        }
    return {
        "bootstrap.servers": f"127.0.0.1:{listeners['SASL_PLAINTEXT']}",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": {"sasl-plain": "PLAIN", "scram": "SCRAM-SHA-512"}[how],
        "sasl.username": user,
        "sasl.password": password,
    }


def create(broker: Broker, topic: str) -> None:
    admin = AdminClient(connection(broker, "plain"))
    admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_S)


def produce(settings: dict[str, str], topic: str, value: bytes) -> KafkaError | None:
    """The error of its delivery."""
    found: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": 10_000, "log_level": 0})
    producer.produce(topic, value, on_delivery=lambda error, _: found.append(error))
    producer.flush(PATIENCE_S)
    return found[0]


def consume(settings: dict[str, str], topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest", "log_level": 0})
    consumer.subscribe([topic])
    try:
        return [message.value() for message in consumer.consume(count, PATIENCE_S)]
    finally:
        consumer.close()


@pytest.mark.parametrize("how", ["plain", "sasl-plain", "scram"])
def test_records_through_every_listener(broker, how):
    create(broker, how)
    assert produce(connection(broker, how), how, b"hello") is None
    assert consume(connection(broker, how), how, 1) == [b"hello"]


def test_a_client_certificate_is_a_user_that_acls_speak_of(broker):
    create(broker, "guarded")
    refused = produce(connection(broker, "tls"), "guarded", b"x")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow(broker, "User:client", "guarded")
    assert produce(connection(broker, "tls"), "guarded", b"x") is None


def allow(broker: Broker, principal: str, topic: str) -> None:
    from confluent_kafka.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    admin = AdminClient(connection(broker, "plain"))
    rule = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        principal,
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([rule])[rule].result(PATIENCE_S)
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )  # the controller has it; the broker shows it a moment later
    eventually(lambda: rule in admin.describe_acls(every).result(PATIENCE_S))


def test_users_need_their_password_and_their_acls(broker):
    create(broker, "mine")
    refused = produce(connection(broker, "scram", "alice", "wonder"), "mine", b"x")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException):
        AdminClient({**connection(broker, "scram", "alice", "wrong"), "log_level": 0}).list_topics(timeout=3)


def test_data_outlives_a_restart(tmp_path, monkeypatch):
    monkeypatch.setenv("KAFKA_JVM_PERFORMANCE_OPTS", "-XX:TieredStopAtLevel=1 '-Dgiven=by the user'", prepend=" ")
    settings = BrokerSettings(tmp_path, free_port(), free_port())
    broker = Broker(settings)
    pid = broker.start().pid
    try:
        assert "-Dgiven=by the user" in psutil.Process(pid).cmdline()
        create(broker, "kept")
        assert produce(connection(broker, "plain"), "kept", b"1") is None
        with pytest.raises(InvalidStateError, match="already"):
            Broker.in_directory(tmp_path).start()
        assert broker.stop(kill=True)
        assert broker.status().pid is None
        assert not broker.stop()
        again = Broker.in_directory(tmp_path)
        again.start()
        assert again.settings == settings
        assert consume(connection(again, "plain"), "kept", 1) == [b"1"]
        for _ in range(3):  # its ports are free, whoever has started it, and whoever ends it
            assert Broker.in_directory(tmp_path).stop(kill=True)
            assert not any(is_taken(port) for port in settings.ports)
            Broker.in_directory(tmp_path).start()
    finally:
        Broker.in_directory(tmp_path).stop()


def test_formatting_takes_the_options_of_java_too(tmp_path, monkeypatch):
    monkeypatch.setenv("KAFKA_JVM_PERFORMANCE_OPTS", "-XX:+NoSuchOption")
    with pytest.raises(EnvironmentProblemError, match="could not be formatted"):
        Broker(BrokerSettings(tmp_path, free_port(), free_port())).start()


def test_a_busy_port_is_the_reason_given(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EnvironmentProblemError, match="in use by another process"):
            Broker(BrokerSettings(tmp_path, port, free_port())).start()
    assert not list(tmp_path.iterdir())


def test_settings_that_contradict_each_other(tmp_path):
    with pytest.raises(ConfigError, match="the same port"):
        BrokerSettings(tmp_path, 9092, 9092)
    with pytest.raises(ConfigError, match="blanks"):
        BrokerSettings(tmp_path, sasl_port=9094, users={"a": 'b"'})
    with pytest.raises(ConfigError, match="a listener with authentication"):
        BrokerSettings(tmp_path, users={"a": "b"})


def test_the_commands(tmp_path: Path):
    run = CliRunner().invoke
    where = ["--dir", str(tmp_path)]
    assert isinstance(run(app, ["status", *where]).exception, InvalidStateError)
    ports = ["--port", str(free_port()), "--controller-port", str(free_port())]
    started = run(app, ["start", *where, *ports, "--json"])
    try:
        assert json.loads(started.stdout)["running"]
        assert "plaintext" in run(app, ["status", *where]).stdout
        assert "Kafka Server started" in run(app, ["logs", *where]).stdout
    finally:
        assert run(app, ["stop", *where]).stdout == "stopped\n"
    assert run(app, ["status", *where]).exit_code == 1
