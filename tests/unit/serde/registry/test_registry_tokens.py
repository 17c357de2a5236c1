"""A registry that wants tokens gets them: of client credentials, of identities, and as they are."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.config import StreamsConfig
from penstock.errors import ConfigError, SchemaRegistryError
from penstock.serde.schemas.client import client_for
from penstock.serde.schemas.schema_settings import SchemaSettings
from token_endpoint import TokenEndpoint, unsigned

SOURCE = "bearer.auth.credentials.source"


@pytest.fixture
def registry():
    """A registry with one schema, which knows whose requests came: ``seen`` has their headers."""
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(dict(self.headers))
            allowed = self.headers.get("Authorization", "").startswith("Bearer e")
            data = json.dumps({"schema": '"string"'} if allowed else {"error_code": 401, "message": "no"}).encode()
            self.send_response(200 if allowed else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    server.url, server.seen = f"http://127.0.0.1:{server.server_port}", seen
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def ask(registry, **settings: str) -> str:
    named = {name.replace("_", "."): text for name, text in settings.items()}
    client = client_for(SchemaSettings.of({"schema.registry.url": registry.url, **named}))
    return client.schema(1).schema.text


def test_tokens_of_client_credentials_without_what_confluent_cloud_has_alone(registry):
    with TokenEndpoint({"alice": "wonder"}) as provider:
        settings = {
            SOURCE: "OAUTHBEARER",
            "bearer.auth.issuer.endpoint.url": provider.url,
            "bearer.auth.client.id": "alice",
            "bearer.auth.client.secret": "wonder",
        }
        assert ask(registry, **settings) == '"string"'
        more = {"bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "pool-1"}
        assert ask(registry, **settings, **more) == '"string"'
        with pytest.raises(SchemaRegistryError, match="no token for the registry") as refused:
            ask(registry, **settings | {"bearer.auth.client.secret": "wrong", "max.retries": "0"})
    assert "bearer.auth.client.secret" in refused.value.hint
    assert (registry.seen[-1]["target-sr-cluster"], registry.seen[-1]["Confluent-Identity-Pool-Id"]) == (
        "lsrc-1",
        "pool-1",
    )


def test_a_token_as_it_is_and_tokens_of_a_function(registry):
    assert ask(registry, **{SOURCE: "STATIC_TOKEN", "bearer.auth.token": unsigned("bob", 60)}) == '"string"'
    assert ask(registry, penstock_registry_identity="robot_identity:token") == '"string"'
    assert registry.seen[-1]["Authorization"].startswith("Bearer e")
    with pytest.raises(SchemaRegistryError, match="401") as refused:
        ask(registry, **{SOURCE: "STATIC_TOKEN", "bearer.auth.token": "wrong"})
    assert "bearer.auth" in refused.value.hint


def test_the_settings_of_an_application_name_the_identity_too(registry):
    given = {"schema.registry.url": registry.url, "penstock.registry.identity": "robot_identity:token"}
    assert client_for(SchemaSettings().with_defaults(given)).schema(1).schema.text == '"string"'


def test_a_mistyped_setting_of_the_identity_is_no_setting_of_an_application():
    StreamsConfig(
        {"application.id": "a", "penstock.registry.identity": "azure", "penstock.registry.identity.scope": "x"}
    )
    with pytest.raises(ConfigError, match="there is no setting"):
        StreamsConfig({"application.id": "a", "penstock.registry.identty": "azure"})


@pytest.mark.parametrize(
    "defaults",
    [
        {"penstock.registry.identity": "robot_identity:token"},
        {SOURCE: "STATIC_TOKEN", "bearer.auth.token": unsigned("bob", 60)},
        {"basic.auth.user.info": "a:b"},
    ],
)
def test_a_serde_with_credentials_of_its_own_shows_none_of_the_applications(registry, defaults):
    given = {"schema.registry.url": "http://localhost:1", **defaults}
    token = {SOURCE: "STATIC_TOKEN", "bearer.auth.token": unsigned("ann", 60)}
    identity = {"penstock.registry.identity": "robot_identity:token"}
    for own in (token, identity):
        settings = SchemaSettings.of({"url": registry.url, **own}).with_defaults(given)
        assert client_for(settings).schema(1).schema.text == '"string"'
        if own is token:
            assert registry.seen[-1]["Authorization"] == f"Bearer {token['bearer.auth.token']}"
    basics = [{"url": registry.url, "basic.auth.user.info": "c:d"}, {"url": registry.url.replace("//", "//c:d@")}]
    for own in basics:
        with pytest.raises(SchemaRegistryError, match="401"):
            client_for(SchemaSettings.of(own).with_defaults(given)).schema(1)
        assert registry.seen[-1]["Authorization"] == "Basic Yzpk"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "SASL_INHERIT, which is not supported"),
        ({"basic.auth.credentials.source": "USER_INFO"}, "there is no basic.auth.user.info"),
        ({SOURCE: "SASL_OAUTHBEARER_INHERIT"}, "SASL_OAUTHBEARER_INHERIT, which is not supported"),
        ({SOURCE: "STATIC_TOKEN", "basic.auth.user.info": "a:b"}, "are both set"),
        ({SOURCE: "STATIC_TOKEN", "penstock.registry.identity": "azure"}, "are both set"),
        ({"penstock.registry.identity": "aws"}, "for MSK's brokers alone"),
        ({"penstock.registry.identity": "azure"}, "no scope is named"),
        ({"penstock.registry.identity.scope": "x"}, "no penstock.registry.identity"),
        (
            {"penstock.registry.identity": "robot_identity:token", "penstock.registry.identity.scope": "x"},
            "has no effect",
        ),
    ],
)
def test_settings_that_would_not_be_obeyed_are_refused(settings, message):
    with pytest.raises(ConfigError) as refused:
        client_for(SchemaSettings.of({"url": "http://localhost:1", **settings}))
    assert message in str(refused.value)


def test_credentials_in_the_url_are_those_that_count_where_the_source_says_so():
    settings = {"url": "http://a:b@localhost:1", "basic.auth.credentials.source": "URL", "basic.auth.user.info": "c:d"}
    assert "basic.auth.user.info" not in SchemaSettings.of(settings).client()


def test_a_converter_of_connect_sends_the_tokens_of_an_identity(registry):
    from penstock.connect.registry_converters import AvroConverter

    converter = AvroConverter()
    converter.configure({"schema.registry.url": registry.url, "penstock.registry.identity": "robot_identity:token"})
    assert converter.to_connect("orders", bytes([0, 0, 0, 0, 1, 4]) + b"hi").value == "hi"
    assert registry.seen[-1]["Authorization"].startswith("Bearer e")
