"""One set of client settings for Java, librdkafka and Python."""

from __future__ import annotations

import logging
import pickle
import re
import ssl
import subprocess
import time

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from penstock.config import CONFIG_DEFS, StreamsConfig
from penstock.errors import ConfigError
from penstock.log.kafka.client_settings import ClientSettings
from penstock.log.kafka.clients.connections import Clients
from penstock.tools.broker.process import make_certificates

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{PLAIN} required username="alice" password="won\\"der;";'
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def stores(certificates):
    """The same authority and client in the stores that Java users have."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
    from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
    from cryptography.x509 import load_pem_x509_certificates

    pem = (certificates / "client.pem").read_bytes()
    own, *others = load_pem_x509_certificates(pem)
    data = serialize_key_and_certificates(
        b"client", load_pem_private_key(pem, None), own, others or None, BestAvailableEncryption(b"changeit")
    )
    (certificates / "client.p12").write_bytes(data)
    for kind, name in (("JKS", "ca.jks"), ("PKCS12", "ca.p12")):
        keytool("-importcert", "-noprompt", "-alias", "ca", "-file", certificates / "ca.pem", "-keystore",
                certificates / name, "-storetype", kind, "-storepass", "changeit")  # fmt: skip
    keytool("-importkeystore", "-srckeystore", certificates / "client.p12", "-srcstorepass", "changeit",
            "-destkeystore", certificates / "client.jks", "-deststoretype", "JKS", "-deststorepass", "changeit")  # fmt: skip
    return certificates


def keytool(*arguments):
    subprocess.run(["keytool", *map(str, arguments)], check=True, capture_output=True)


def taken_by_librdkafka(settings: ClientSettings) -> None:
    """Every client is made: librdkafka refuses what it does not know."""
    Consumer({**settings.librdkafka("consumer"), "group.id": "g", "log_level": 0}).close()
    Producer({**settings.librdkafka("producer"), "log_level": 0})
    AdminClient({**settings.librdkafka("admin"), "log_level": 0})


@pytest.mark.parametrize("by", ["jaas", "librdkafka"])
def test_a_user_by_either_name(by):
    own = {"sasl.jaas.config": JAAS} if by == "jaas" else {"sasl.username": "alice", "sasl.password": 'won"der;'}
    settings = ClientSettings.of("localhost:1", SASL | own)
    assert dict(settings.librdkafka("producer")) == {
        "bootstrap.servers": "localhost:1",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": 'won"der;',
    }
    assert dict(settings.jvm("producer")) == {"bootstrap.servers": "localhost:1", "sasl.jaas.config": JAAS, **SASL}
    assert dict(settings.kafka_python()) == {
        "bootstrap_servers": ["localhost:1"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": 'won"der;',
    }


def test_prefixes_are_for_their_clients_and_the_nearest_wins():
    settings = ClientSettings.of(
        "kafka://a:1,b:2",
        {
            "request.timeout.ms": 30_000,
            "fetch.min.bytes": 1,
            "consumer.fetch.min.bytes": 2,
            "main.consumer.fetch.min.bytes": 3,
            "restore.consumer.fetch.min.bytes": 4,
            "producer.linger.ms": 5,
            "producer.buffer.memory": 1 << 20,
        },
    )
    assert settings.bootstrap_servers == "a:1,b:2"
    found = {kind: settings.librdkafka(kind) for kind in ("consumer", "restore.consumer", "global.consumer")}
    assert [each["fetch.min.bytes"] for each in found.values()] == ["3", "4", "2"]
    assert found["consumer"]["socket.timeout.ms"] == "30000"
    producer = settings.librdkafka("producer")
    assert (producer["linger.ms"], producer["queue.buffering.max.kbytes"]) == ("5", "1024")
    assert "fetch.min.bytes" not in producer
    assert settings.jvm("producer")["buffer.memory"] == str(1 << 20)
    assert set(settings.librdkafka("admin")) == {"bootstrap.servers", "socket.timeout.ms"}


def test_every_setting_that_both_sides_know_is_taken_by_librdkafka():
    taken_by_librdkafka(
        ClientSettings.of(
            "localhost:1",
            {
                "client.id": "me",
                "client.dns.lookup": "use_all_dns_ips",
                "metadata.max.age.ms": 60_000,
                "metadata.recovery.strategy": "rebootstrap",
                "enable.metrics.push": False,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 500,
                "receive.buffer.bytes": 65536,
                "consumer.auto.offset.reset": "none",
                "consumer.fetch.max.wait.ms": 100,
                "consumer.isolation.level": "read_committed",
                "consumer.max.poll.records": 500,
                "consumer.partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
                "producer.acks": "all",
                "producer.compression.type": "zstd",
                "producer.compression.zstd.level": 3,
                "producer.max.request.size": 2 << 20,
                "producer.max.block.ms": 1000,
                "producer.interceptor.classes": "org.example.Interceptor",
            },
        )
    )


def test_a_whole_config_may_be_handed_in():
    config = StreamsConfig(
        {
            "application.id": "shop",
            "bootstrap.servers": "localhost:1",
            "commit.interval.ms": 100,
            "topic.retention.ms": 1,
            "spark.master": "local[1]",
            "client.tag.zone": "a",
            "reconnect.backoff.ms": "1 second",
            "acks": "1",
        }
    )
    settings = ClientSettings.of(settings=config.given)
    assert dict(settings.librdkafka("producer")) == {
        "bootstrap.servers": "localhost:1",
        "reconnect.backoff.ms": "1000",
        "acks": "1",
    }


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sasl.jaas.confg", "Did you mean sasl.jaas.config"),
        ("producer.linger_ms", "Did you mean producer.linger.ms"),
        ("consumer.linger.ms", "is a setting of producers"),
        ("ssl.trustore.location", "ssl.truststore.location"),
    ],
)
def test_unknown_names(name, says):
    for take in (lambda: StreamsConfig({name: "x"}), lambda: ClientSettings.of("localhost:1", {name: "x"})):
        with pytest.raises(ConfigError, match=says):
            take()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"security.protocol": "TLS"}, "One of PLAINTEXT"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "needs a user"),
        ({"sasl.username": "alice", "sasl.password": "x"}, "no effect"),
        (SASL | {"sasl.jaas.config": "alice/hunter2"}, "does not begin"),
        (SASL | {"sasl.jaas.config": f'{PLAIN} required username="a" hunter2;'}, "after the option 'username'"),
        (SASL | {"sasl.jaas.config": f'{PLAIN} required username="a" password="hunter2"'}, "semicolon"),
        (SASL | {"sasl.jaas.config": JAAS, "sasl.username": "bob"}, "twice"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/nowhere/ca.pem"}, "every executor"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere/ca.pem"}, "every executor"),
    ],
)
def test_what_cannot_work_is_said_before_a_connection(settings, says):
    with pytest.raises(ConfigError, match=says) as caught:
        ClientSettings.of("localhost:1", settings).librdkafka("consumer")
    assert "hunter2" not in str(caught.value)


def test_one_setting_with_two_values():
    with pytest.raises(ConfigError, match=r"linger\.ms and queue\.buffering\.max\.ms"):
        ClientSettings.of("localhost:1", {"linger.ms": 1, "queue.buffering.max.ms": 2})


def test_secrets_are_not_shown(caplog):
    settings = SASL | {"sasl.jaas.config": JAAS, "ssl.key.password": "hunter2", "producer.sasl.jaas.config": JAAS}
    client, config = ClientSettings.of("localhost:1", settings), StreamsConfig(settings)
    logging.getLogger("penstock").warning("%s %r %s", client, client.librdkafka("producer"), client.jvm("producer"))
    told = [
        repr(client),
        str(config),
        config.explain(),
        caplog.text,
        str(client.kafka_python()),
        repr(client.security()),
    ]
    assert not [text for text in told if "won" in text or "hunter2" in text]


def test_references_are_looked_up_where_a_client_is_made(monkeypatch, tmp_path):
    (tmp_path / "secrets.properties").write_text("password = from a file\n")
    (tmp_path / "user").write_text("alice\n")
    settings = ClientSettings.of(
        "${env:BROKER}",
        SASL
        | {
            "sasl.username": f"${{directory:{tmp_path}:user}}",
            "sasl.password": f"${{file:{tmp_path}/secrets.properties:password}}",
        },
    )
    with pytest.raises(ConfigError, match="environment has no BROKER"):
        settings.librdkafka("consumer")
    monkeypatch.setenv("BROKER", "localhost:1")
    there = pickle.loads(pickle.dumps(settings))
    assert there == settings
    found = there.librdkafka("consumer")
    assert (found["bootstrap.servers"], found["sasl.username"]) == ("localhost:1", "alice")
    assert found["sasl.password"] == "from a file"
    assert "from a file" not in repr(settings)
    assert "secrets.properties:password" in repr(settings)


PEM = {"ssl.ca.location": "ca.pem", "ssl.certificate.location": "client.pem", "ssl.key.location": "client.pem"}
JAVA_PEM = {
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "ca.pem",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "client.pem",
}
PKCS12 = {
    "ssl.truststore.location": "ca.p12",
    "ssl.truststore.password": "changeit",
    "ssl.keystore.location": "client.p12",
    "ssl.keystore.password": "changeit",
}
JKS = {"ssl.truststore.location": "ca.jks", "ssl.truststore.password": "changeit"}


@pytest.mark.parametrize("given", [PEM, JAVA_PEM, PKCS12, JKS], ids=["librdkafka", "pem", "pkcs12", "jks"])
def test_certificates_of_every_form_reach_every_client(stores, given):
    settings = {name: str(stores / value) if name.endswith(".location") else value for name, value in given.items()}
    client = ClientSettings.of("localhost:1", {"security.protocol": "SSL", **settings})
    taken_by_librdkafka(client)
    context = client.kafka_python()["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert len(context.get_ca_certs()) == 1
    java = client.jvm("consumer")
    assert java["ssl.truststore.location"] == settings.get("ssl.ca.location", settings.get("ssl.truststore.location"))
    if given is PEM:
        assert (java["ssl.keystore.type"], java["ssl.keystore.location"]) == ("PEM", settings["ssl.key.location"])


def test_certificates_as_text(certificates):
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    text = (certificates / "client.pem").read_text()
    key = load_pem_private_key(text.encode(), None)
    old = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
    client = ClientSettings.of(
        "localhost:1",
        {
            "security.protocol": "SSL",
            "ssl.ca.pem": (certificates / "ca.pem").read_text(),
            "ssl.certificate.pem": text[text.index("-----BEGIN CERTIFICATE") :],
            "ssl.key.pem": old,
        },
    )
    taken_by_librdkafka(client)
    assert client.kafka_python()["ssl_context"].get_ca_certs()
    assert client.jvm("consumer")["ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY")


def test_stores_that_cannot_be_read(stores):
    def of(**changes):
        return ClientSettings.of("localhost:1", {"security.protocol": "SSL", **changes}).librdkafka("consumer")

    with pytest.raises(ConfigError, match=r"keytool -importkeystore .* -deststoretype PKCS12"):
        of(**{"ssl.keystore.location": str(stores / "client.jks"), "ssl.keystore.password": "changeit"})
    with pytest.raises(ConfigError, match=r"Look at ssl\.truststore\.password"):
        of(**{"ssl.truststore.location": str(stores / "ca.p12"), "ssl.truststore.password": "wrong"})
    (stores / "empty").write_bytes(b"")
    with pytest.raises(ConfigError, match="PKCS #12, or PEM"):
        of(**{"ssl.truststore.location": str(stores / "empty")})


def _socket_timeouts(given, caplog):
    """Return socket.timeout.ms of a consumer and an admin client, as librdkafka reports its configuration."""
    caplog.clear()
    clients = Clients("127.0.0.1:1", {"debug": "conf", **given})
    member, admin = clients.member({"group.id": "g"}), clients.admin()
    wanted = re.compile(r"\[rdkafka#(\w+)-\d+\].* socket\.timeout\.ms = (\d+)")
    deadline = time.monotonic() + 120
    found = []
    while len(found) < 2 and time.monotonic() < deadline:
        member.poll(0.05)
        admin.poll(0.05)
        found = [int(match[2]) for line in caplog.messages if (match := wanted.search(line))]
    member.close()
    return found


@pytest.mark.parametrize(
    ("given", "timeout_ms"),
    [({}, CONFIG_DEFS["request.timeout.ms"].default), ({"request.timeout.ms": "20000"}, 20_000)],
)
def test_all_clients_wait_for_the_documented_time(given, timeout_ms, caplog):
    caplog.set_level(logging.DEBUG, "penstock.log.kafka.clients.connections")
    assert _socket_timeouts(given, caplog) == [timeout_ms, timeout_ms]
    assert Clients("127.0.0.1:1", given).limits().timeout_ms == timeout_ms


def test_librdkafka_s_own_name_wins_over_the_default(caplog):
    caplog.set_level(logging.DEBUG, "penstock.log.kafka.clients.connections")
    assert _socket_timeouts({"socket.timeout.ms": "7000"}, caplog) == [7_000, 7_000]


@pytest.mark.parametrize(
    "name", ["client.dns.lookup", "producer.client.dns.lookup", "restore.consumer.client.dns.lookup"]
)
def test_canonical_names_of_bootstrap_servers_are_refused(name):
    with pytest.raises(ConfigError, match="only use_all_dns_ips is obeyed"):
        ClientSettings.of("localhost:1", {name: "resolve_canonical_bootstrap_servers_only"})
