from __future__ import annotations

import pytest
from confluent_kafka import Producer

from penstock.errors import AuthenticationError, ConfigError
from penstock.log.kafka.client_settings import ClientSettings
from penstock.log.kafka.refused_access import ClusterAccess
from penstock.log.kafka.security.oauth import TokenSource
from token_endpoint import TokenEndpoint

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture
def endpoint():
    with TokenEndpoint({"alice": "wonder"}) as running:
        yield running


def settings(url: str, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": "alice",
        "sasl.oauthbearer.client.credentials.client.secret": "wonder",
        **more,
    }


def test_a_token_is_kept_while_it_lasts(endpoint):
    source = TokenSource(endpoint.url, "alice", "wonder", "kafka")
    assert source.token() == source.token()
    assert endpoint.asked == [{"grant_type": ["client_credentials"], "scope": ["kafka"]}]


def test_a_token_is_renewed_before_it_ends():
    with TokenEndpoint({"alice": "wonder"}, lifetime_s=0) as endpoint:
        source = TokenSource(endpoint.url, "alice", "wonder")
        source.token()
        source.token()
        assert len(endpoint.asked) == 2


@pytest.mark.parametrize(
    "given",
    [
        settings("http://provider/token", **{"sasl.oauthbearer.scope": "kafka"}),
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "http://provider/token",
            "sasl.jaas.config": f'{MODULE} required clientId="alice" clientSecret="wonder" scope="kafka";',
        },
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": "http://provider/token",
            "sasl.oauthbearer.client.id": "alice",
            "sasl.oauthbearer.client.secret": "wonder",
            "sasl.oauthbearer.scope": "kafka",
        },
    ],
    ids=["java", "jaas", "librdkafka"],
)
def test_either_set_of_names_reaches_every_client(given):
    found = ClientSettings.of("broker:9092", given)
    tokens = found.kafka_python()["tokens"]
    assert (tokens.endpoint, tokens.client_id, tokens.client_secret, tokens.scope) == (
        "http://provider/token", "alice", "wonder", "kafka"
    )  # fmt: skip
    of_librdkafka = found.librdkafka("producer")
    assert of_librdkafka["sasl.oauthbearer.method"] == "oidc"
    assert of_librdkafka["sasl.oauthbearer.client.secret"] == "wonder"
    Producer({**of_librdkafka, "log_level": 0})
    assert 'clientId="alice" clientSecret="wonder" scope="kafka"' in found.jvm("consumer")["sasl.jaas.config"]
    assert "wonder" not in f"{found!r} {tokens!r} {found.kafka_python()!r} {of_librdkafka!r}"


def test_extensions_by_either_name():
    given = {"sasl.oauthbearer.token.endpoint.url": "http://provider/token"}
    assert TokenSource.of({"clientId": "a", "clientSecret": "b", "extension_cluster": "one"}, given).extensions == {
        "cluster": "one"
    }
    both = settings("http://provider/token", **{"sasl.oauthbearer.extensions": "cluster=one,pool=p"})
    found = ClientSettings.of("broker:9092", both)
    assert found.librdkafka("admin")["sasl.oauthbearer.extensions"] == "cluster=one,pool=p"
    assert 'extension_pool="p"' in found.jvm("consumer")["sasl.jaas.config"]


def test_what_is_missing_is_named(endpoint):
    incomplete = settings(endpoint.url)
    del incomplete["sasl.oauthbearer.client.credentials.client.secret"]
    with pytest.raises(ConfigError, match=r"needs sasl\.oauthbearer\.client\.credentials\.client\.secret"):
        ClientSettings.of("broker:9092", incomplete).kafka_python()
    with pytest.raises(AuthenticationError, match=r"no token for client 'alice' .* 401 invalid_client"):
        TokenSource(endpoint.url, "alice", "wrong").token()
    with pytest.raises(AuthenticationError, match="refused"):
        TokenSource("http://127.0.0.1:1/token", "alice", "wonder").token()
    with pytest.raises(ConfigError, match="file:"):
        TokenSource("file:///etc/passwd", "alice", "wonder").token()


def test_kerberos_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"sasl\.mechanism GSSAPI: not supported") as caught:
        ClientSettings.of("broker:9092", {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}).security()
    assert "OAUTHBEARER" in caught.value.hint
    with pytest.raises(ConfigError, match="as nothing else is set"):
        ClientSettings.of("broker:9092", {"security.protocol": "SASL_SSL"}).security()


def test_acls_name_the_subject_of_the_token(endpoint):
    def principal(**more: str) -> str:
        given = settings(endpoint.url, **{"security.protocol": "SASL_PLAINTEXT", **more})
        return ClusterAccess(ClientSettings.of("localhost:1", given)).principal()

    assert principal() == "User:alice"
    assert principal(**{"sasl.oauthbearer.sub.claim.name": "scope"}) == "User:kafka"
    assert principal(**{"sasl.oauthbearer.client.credentials.client.secret": "wrong"}) == "User:?"
