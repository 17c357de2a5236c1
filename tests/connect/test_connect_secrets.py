"""Secrets of connectors: hidden in answers, kept when stars come back; requests between workers with users."""

import base64

import pytest

from penstock.connect.connectors import known_plugins
from penstock.connect.plugins import WorkerSettings
from penstock.connect.rest.server import _authorization
from penstock.connect.settings.providers import config_providers
from penstock.connect.worker.operations import HIDDEN, Hiding
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
