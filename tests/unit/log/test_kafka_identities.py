"""Identities by name: the packages of clouds sign here, or ask a provider on this machine."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from penstock import StreamsConfig
from penstock.base.identities import CachedTokens, Token, identity_tokens
from penstock.errors import AuthenticationError, ConfigError
from penstock.log.kafka.client_settings import ClientSettings
from penstock.log.kafka.clients.connections import Clients

IDENTITY = "penstock.kafka.identity"
OF_CLOUDS = ("AWS_", "AZURE_", "GOOGLE_", "IDENTITY_", "MSI_", "IMDS_", "CLOUDSDK_")


@pytest.fixture(autouse=True)
def _no_cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No credentials of this machine or of a test before."""
    import os

    from penstock.base import identities

    for name in [each for each in os.environ if each.startswith(OF_CLOUDS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    identities._tokens.cache_clear()
    yield
    identities._tokens.cache_clear()


@contextmanager
def provider(answer: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A provider of tokens, and what it has been asked."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append({**parse_qs(urlsplit(self.path).query), "header": self.headers.get("X-IDENTITY-HEADER")})
            self._reply()

        def do_POST(self) -> None:
            asked.append(dict(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())))
            self._reply()

        def _reply(self) -> None:
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def settings(identity: str, **more: str) -> dict[str, str]:
    own = {name.replace("_", "."): value for name, value in more.items()}
    return {"security.protocol": "SASL_SSL", IDENTITY: identity, **{f"{IDENTITY}.{k}": v for k, v in own.items()}}


def decoded(part: str) -> str:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode()


def test_aws_signs_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    found = ClientSettings.of("broker:9098", settings("aws", region="eu-central-1"))
    python = found.kafka_python()
    assert python["sasl_mechanism"] == "OAUTHBEARER"
    token = python["tokens"].token()
    url = urlsplit(decoded(token))
    asked = parse_qs(url.query)
    assert url.netloc == "kafka.eu-central-1.amazonaws.com"
    assert asked["Action"] == ["kafka-cluster:Connect"]
    assert asked["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    text, ends_s, _, extensions = found.librdkafka("producer")["oauth_cb"]("")
    assert (text, extensions) == (token, {}), "one token for all clients of a process"
    assert 0 < ends_s - time.time() <= 900
    assert "very-secret" not in repr(python) + repr(found) + token


def test_the_settings_of_amazons_java_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    pasted = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
    token = ClientSettings.of("broker:9098", pasted).kafka_python()["tokens"].token()
    assert "kafka.us-east-1.amazonaws.com" in decoded(token)
    module = "software.amazon.msk.auth.iam.IAMLoginModule required"
    pasted["sasl.jaas.config"] = f'{module} awsProfileName="shop" awsDebugCreds=true;'
    with pytest.raises(AuthenticationError, match="shop"):
        ClientSettings.of("broker:9098", pasted).kafka_python()["tokens"].token()
    for option in ('awsStsRegion="eu-west-1"', 'awsRoleExternalId="x"', 'awsRoleSessionName="y"'):
        pasted["sasl.jaas.config"] = f'{module} awsRoleArn="arn:aws:iam::1:role/shop" {option};'
        with pytest.raises(ConfigError, match=option.partition("=")[0]):
            ClientSettings.of("broker:9098", pasted).kafka_python()


def test_a_profile_of_aws_has_its_region_and_stands_for_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "aws-config"
    config.write_text(
        "[profile shop]\nregion = eu-west-3\naws_access_key_id = AKID\naws_secret_access_key = very-secret\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    token = identity_tokens("aws", {"profile": "shop"}, IDENTITY).get()
    assert "kafka.eu-west-3.amazonaws.com" in decoded(token.text)
    with pytest.raises(AuthenticationError, match="no token of aws: ProfileNotFound") as caught:
        identity_tokens("aws", {"profile": "other"}, IDENTITY)
    assert "~/.aws/config" in caught.value.hint
    with pytest.raises(ConfigError, match="both set"):
        identity_tokens("aws", {"profile": "shop", "role.arn": "arn:aws:iam::1:role/shop"}, IDENTITY)


def test_azure_asks_the_identity_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = int(time.time()) + 3600
    with provider({"access_token": "of-azure", "expires_on": str(ends), "token_type": "Bearer"}) as (url, asked):
        monkeypatch.setenv("IDENTITY_ENDPOINT", url)
        monkeypatch.setenv("IDENTITY_HEADER", "header-secret")
        scope = "https://shop.servicebus.windows.net/.default"
        found = ClientSettings.of("shop.servicebus.windows.net:9093", settings("azure", scope=scope))
        assert found.kafka_python()["tokens"].token() == "of-azure"
    assert asked[0]["resource"] == ["https://shop.servicebus.windows.net"]
    assert asked[0]["header"] == "header-secret"


def test_google_asks_for_a_service_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with provider({"access_token": "of-google", "expires_in": 3600, "token_type": "Bearer"}) as (url, asked):
        account = {
            "type": "service_account", "client_email": "shop@project.example", "private_key": key.decode(),
            "token_uri": f"{url}/token", "project_id": "project",
        }  # fmt: skip
        file = tmp_path / "account.json"
        file.write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        handler = "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"
        pasted = {
            "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": handler,
            "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
        }  # fmt: skip
        token = ClientSettings.of("bootstrap.shop:9092", pasted).kafka_python()["tokens"].token()
        plain = identity_tokens("google", {"format": "access"}, IDENTITY).get()
    head, claims, access = map(decoded, token.split("."))
    assert json.loads(head) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert json.loads(claims)["sub"] == "shop@project.example"
    assert access == plain.text == "of-google"
    assert 3000 < json.loads(claims)["exp"] - time.time() < 3700
    assert asked[0]["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]


def test_tokens_are_renewed_before_they_end() -> None:
    given: list[Token] = []

    def request() -> Token:
        given.append(Token(f"{len(given)}", time.time() + (0.0 if len(given) < 2 else 3600.0)))
        return given[-1]

    tokens = CachedTokens(request)
    assert [tokens.get().text for _ in range(5)] == ["0", "1", "2", "2", "2"]


def test_a_token_that_lasts_is_kept_while_its_provider_is_away() -> None:
    answers: list[Token | None] = []

    def request() -> Token:
        token = answers.pop(0)
        if token is None:
            raise AuthenticationError("no token of a cloud", hint="It is away.")
        return token

    def tokens(lasts_s: float) -> CachedTokens:
        answers[:] = [Token("first", time.time() + lasts_s), None, Token("second", time.time() + 3600)]
        cached = CachedTokens(request)
        assert cached.get().text == "first"
        cached._renew_at = 0.0  # four fifths have passed
        return cached

    cached = tokens(lasts_s=60)
    assert [cached.get().text for _ in range(3)] == ["first"] * 3
    assert len(answers) == 1, "the provider is not asked at each connection"
    cached._renew_at = 0.0
    assert cached.get().text == "second"
    with pytest.raises(AuthenticationError):
        tokens(lasts_s=1).get()


@pytest.mark.parametrize("identity", ["aws", "azure", "google"])
def test_a_package_that_is_not_installed_is_named_with_its_extra(identity: str) -> None:
    code = (
        "import sys\n"
        "for name in ('aws_msk_iam_sasl_signer', 'azure.identity', 'google.auth'): sys.modules[name] = None\n"
        "from penstock.base.identities import identity_tokens\n"
        f"try: identity_tokens({identity!r}, {{}}, 'it')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.startswith("EnvironmentProblemError")
    assert f'pip install "penstock[{identity}]"' in told


def test_missing_credentials_and_settings_have_a_hint() -> None:
    with pytest.raises(AuthenticationError, match="no token of aws") as caught:
        identity_tokens("aws", {"region": "eu-central-1"}, IDENTITY).get()
    assert "~/.aws" in caught.value.hint
    with pytest.raises(AuthenticationError, match="no token of google") as caught:
        identity_tokens("google", {}, IDENTITY).get()
    assert "GOOGLE_APPLICATION_CREDENTIALS" in caught.value.hint
    cases = {
        "aws": "no region is named",
        "azure": "no scope is named",
        "shop": "One of aws, azure, google",
        "no.such.module:token": "cannot be imported",
        "robot_identity:missing": "cannot be imported",
    }
    for identity, says in cases.items():
        with pytest.raises(ConfigError, match=says):
            ClientSettings.of("broker:9092", settings(identity)).kafka_python()
    with pytest.raises(AuthenticationError, match="has returned a NoneType"):
        identity_tokens("robot_identity:nothing", {}, IDENTITY).get()


def test_clients_say_at_once_why_there_is_no_token() -> None:
    clients = Clients("broker:9092", settings("robot_identity:nothing"))
    for make in (clients.admin, lambda: clients.member({"group.id": "g"}), lambda: clients.producer(None)):
        began = time.monotonic()
        with pytest.raises(AuthenticationError, match="has returned a NoneType"):
            make()
        assert time.monotonic() - began < 10, "librdkafka waits ten seconds"


def test_an_identity_without_effect_is_refused() -> None:
    for given in ({}, {"security.protocol": "SSL"}, {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}):
        with pytest.raises(ConfigError, match="would have no effect") as raised:
            ClientSettings.of("broker:9092", {IDENTITY: "aws", **given}).kafka_python()
        assert raised.value.hint == "Tokens are for security.protocol=SASL_SSL with sasl.mechanism=OAUTHBEARER."
    cases = {
        "aws": {"scope": "s"},
        "azure": {"region": "r"},
        "google": {"profile": "p"},
        "robot_identity:token": {"format": "access"},
    }
    for identity, option in cases.items():
        with pytest.raises(ConfigError, match="has no effect on"):
            ClientSettings.of("broker:9092", settings(identity, **option)).kafka_python()


def test_applications_and_clients_take_the_settings() -> None:
    config = StreamsConfig({"application.id": "a", "bootstrap.servers": "b:9092", **settings("robot_identity:token")})
    found = ClientSettings.of("b:9092", config.given)
    client = found.librdkafka("producer")
    Producer({**client, "log_level": 0})
    AdminClient({**found.librdkafka("admin"), "log_level": 0})
    assert not [name for name in client if name.startswith("penstock.")]
    assert not [name for name in found.jvm("consumer") if name.startswith("penstock.")]
