"""Secrets of connectors: hidden in answers, kept when stars come back; requests between workers with users."""

import base64

import pytest

from penstock.connect.connectors import known_plugins
from penstock.connect.plugins import WorkerSettings, validate_connector
from penstock.connect.rest.server import _authorization
from penstock.connect.worker.operations import HIDDEN, Hiding
from penstock.connect.worker_settings import config_providers
from penstock.serving.access import AccessRules

CONFIG = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
    "file": "out",
    "consumer.override.sasl.jaas.config": "password=x",
    "value.converter.basic.auth.user.info": "ann:x",
    "db.password": "x",
    "api.secret": "${env:KEY}",
    "note": None,
}


def hiding(*, enabled=True):
    return Hiding(known_plugins(()), config_providers({}), WorkerSettings(), enabled=enabled)


def test_secrets_are_stars_and_references_are_shown():
    shown = hiding().shown(CONFIG)
    assert {name for name, value in shown.items() if value == HIDDEN} == {
        "consumer.override.sasl.jaas.config",
        "db.password",
        "value.converter.basic.auth.user.info",
    }
    assert hiding(enabled=False).shown(CONFIG) == CONFIG


def test_stars_that_come_back_keep_what_is_stored():
    made = hiding()
    changed = {**made.shown(CONFIG), "file": "other"}
    assert made.kept(changed, CONFIG) == {**CONFIG, "file": "other"}


@pytest.mark.parametrize("users", [{"ann": "a:b"}, {"ann": "x", "bob": "y"}])
def test_a_worker_is_let_in_by_another_with_the_same_users(users):
    header = _authorization(users)
    assert base64.b64decode(header["authorization"].split()[1])
    assert AccessRules(users=users).refusal("GET", {"host": "127.0.0.1", **header}) is None


def test_headers_and_addresses_hide_their_secrets_and_keep_them():
    stored = {
        "connector.class": "HttpSource",
        "url": "https://api.example/orders?token=s3cr3t&page=1",
        "headers": "X-Trace: 1, X-Api-Key: s3cr3t, Cookie: s3cr3t",
        "header.X-Api-Key": "s3cr3t",
    }
    made = hiding()
    shown = made.shown(stored)
    assert "s3cr3t" not in str(shown)
    assert shown["headers"] == "X-Trace: 1, X-Api-Key:****, Cookie:****"
    assert made.kept({**shown, "timeout.ms": "5"}, stored) == {**stored, "timeout.ms": "5"}


def test_what_validation_answers_hides_them_too():
    config = {
        "connector.class": "HttpSource",
        "name": "a",
        "topic": "t",
        "url": "https://ann:s3cr3t@api.example/?sig=s3cr3t",
        "headers": "X-Api-Key: s3cr3t",
        "authorization": "Bearer s3cr3t",
        "consumer.override.api.key": "s3cr3t",
    }
    body = validate_connector(config, known_plugins(()), WorkerSettings())
    assert "s3cr3t" in str(body)
    shown = hiding().validation(body)
    assert "s3cr3t" not in str(shown)
    values = {entry["definition"]["name"]: entry["value"]["value"] for entry in shown["configs"]}
    assert (values["topic"], values["url"]) == ("t", "https://ann:***@api.example/?sig=***")


def test_values_of_settings_that_nobody_defines_are_shown_or_hidden_too():
    body = validate_connector({**CONFIG, "name": "a", "topics": "t"}, known_plugins(()), WorkerSettings())
    others = [
        {"definition": None, "value": {"name": name, "value": value, "errors": []}}
        for name, value in (("consumer.override.group.id", "own"), ("consumer.override.ssl.key.password", "s3cr3t"))
    ]
    shown = hiding().validation({**body, "configs": [*others, *body["configs"]]})
    assert [entry["value"]["value"] for entry in shown["configs"][:2]] == ["own", HIDDEN]


def test_headers_that_are_none_are_looked_at_once():
    long = "a" * 1_000_000
    stored = {"connector.class": "HttpSource", "headers": f"{long}, X-Api-Key: s3cr3t, {long}"}
    assert hiding().shown(stored)["headers"] == f"{long}, X-Api-Key:{HIDDEN}, {long}"
