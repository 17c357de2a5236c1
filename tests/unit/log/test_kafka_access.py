from __future__ import annotations

import re
import time

import pytest
import trustme
from confluent_kafka import KafkaError

from penstock.errors import AuthenticationError, AuthorizationError
from penstock.log.kafka.client_settings import ClientSettings
from penstock.log.kafka.refused_access import ClusterAccess

SCRAM = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "alice",
    "sasl.password": "hunter2",
}


def access(**settings: str) -> ClusterAccess:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return ClusterAccess(ClientSettings.of("broker:9092", given or SCRAM))


@pytest.mark.parametrize(
    ("code", "facts", "says", "grants"),
    [
        (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            {"topic": "orders", "operation": "READ"},
            "reading: User:alice may not READ topic orders",
            "--operation READ --topic orders",
        ),
        (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            {"topic": "orders"},
            "may not DESCRIBE topic orders",
            "--operation DESCRIBE --topic orders",
        ),
        (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            {"topic": "orders", "operation": "CREATE"},
            "may not CREATE topic orders",
            "--topic orders (If the topic exists, grant WRITE instead",
        ),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, {"group": "app"}, "may not READ group app", "--group app"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            {"transactional_id": "app-0_1"},
            "may not WRITE transactional-id app-0_1",
            "--transactional-id app-0_1",
        ),
        (
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            {"operation": "WRITE", "topic": "orders"},
            "may not IDEMPOTENT_WRITE cluster kafka-cluster",
            "--operation IDEMPOTENT_WRITE --cluster",
        ),
    ],
)
def test_a_missing_right_is_named_with_the_command_that_grants_it(code, facts, says, grants):
    error = access().explained(KafkaError(code, "refused"), "reading", **facts)
    assert isinstance(error, AuthorizationError)
    assert says in error.message
    assert "kafka-acls --bootstrap-server broker:9092 --add --allow-principal 'User:alice'" in error.hint
    assert grants in error.hint
    assert error.facts["principal"] == "User:alice"


def test_a_resource_that_only_the_text_names():
    text = "Subscribed topic not available: orders.eu: Broker: Topic authorization failed"
    error = access().explained(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, text), "reading")
    assert error.facts["resource"] == "orders.eu"
    nameless = access().explained(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "refused"), "joining")
    assert nameless.message == "joining: User:alice may not READ group"
    assert "--group NAME" in nameless.hint


@pytest.mark.parametrize(
    ("code", "text", "hint"),
    [
        (KafkaError._AUTHENTICATION, "SASL authentication error: invalid credentials", "Is the password right"),
        (KafkaError.UNSUPPORTED_SASL_MECHANISM, "broker's supported mechanisms: PLAIN", "Set sasl.mechanism"),
        (KafkaError._AUTHENTICATION, "broker's supported mechanisms: ", "authenticates nobody"),
        (KafkaError._AUTHENTICATION, "the broker offers no mechanism at all", "authenticates nobody"),
        (KafkaError._AUTHENTICATION, "the broker offers PLAIN", "Set sasl.mechanism"),
        (KafkaError._TRANSPORT, "no TLS connection: EOF; is that listener TLS?", "does not use TLS"),
        (KafkaError._SSL, "certificate verify failed: unable to get local issuer", "Trust the authority"),
        (KafkaError._SSL, "Hostname mismatch, certificate is not valid for 'b'", "is for a name other"),
        (
            KafkaError._TRANSPORT,
            "sslv3 alert bad certificate: SSL alert number 42",
            "requires a client certificate",
        ),
        (KafkaError._SSL, "connecting to a PLAINTEXT broker listener?", "does not use TLS"),
        (KafkaError.ILLEGAL_SASL_STATE, "something new", "See security.protocol"),
    ],
)
def test_why_nobody_was_let_in(code, text, hint):
    error = access().explained(KafkaError(code, f"sasl_plaintext://broker:9092/bootstrap: {text}"), "listing")
    assert isinstance(error, AuthenticationError)
    assert error.message.startswith(
        "listing: no access to broker:9092 with SASL_PLAINTEXT, SCRAM-SHA-512 as user 'alice'"
    )
    assert error.message.endswith(text)
    assert hint in error.hint
    assert "hunter2" not in f"{error.message} {error.hint} {error.facts}"


def test_what_may_pass_is_not_explained():
    for code in (KafkaError._TRANSPORT, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TIMED_OUT):
        assert access().explained(KafkaError(code, "connection refused"), "reading") is None
        assert not ClusterAccess.is_refusal(KafkaError(code, "connection refused"))


def test_a_refusal_is_remembered_and_a_missing_right_is_not():
    began = time.monotonic()
    one = access()
    assert not one.note(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "refused"))  # answers say which topic
    assert not one.note(KafkaError(KafkaError._TRANSPORT, "connection refused"))
    assert one.refused_since(began) is None
    assert one.note(KafkaError(KafkaError._AUTHENTICATION, "invalid credentials"))
    assert one.refused_since(began).code() == KafkaError._AUTHENTICATION
    assert one.refused_since(time.monotonic() + 1) is None


def test_the_principal_of_each_kind_of_client(tmp_path):
    assert access(security_protocol="PLAINTEXT").principal() == "User:ANONYMOUS"
    assert access().principal() == "User:alice"
    authority = trustme.CA()
    own = authority.issue_cert("client.example", common_name="client")
    own.private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    tls = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.keystore.location": str(tmp_path / "client.pem"),
    }
    one = ClusterAccess(ClientSettings.of("broker:9092", tls))
    assert re.match("User:CN=client", one.principal())
    refused = one.explained(KafkaError(KafkaError._SSL, "certificate verify failed"), "listing")
    assert f"with SSL, trusting {tmp_path / 'ca.pem'}, as CN=client" in refused.message
    nobody = ClusterAccess(ClientSettings.of("broker:9092", {"security.protocol": "SSL"}))
    refused = nobody.explained(KafkaError(KafkaError._SSL, "certificate required"), "listing")
    assert "with SSL, trusting the system, without a client certificate" in refused.message


def test_what_librdkafka_notes_behind_a_reason_hides_no_remedy():
    noted = "broker's supported mechanisms:  (after 2ms in state AUTH_HANDSHAKE, 1 identical error(s) suppressed)"
    error = access().explained(KafkaError(KafkaError._AUTHENTICATION, noted), "listing")
    assert "authenticates nobody" in error.hint
