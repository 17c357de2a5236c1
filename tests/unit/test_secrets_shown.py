"""Secrets of settings and URLs are stars wherever they are shown: in logs of any format, in settings, in errors."""

from __future__ import annotations

import io
import logging
import re

import pytest

from penstock.base.log_lines import own_logger
from penstock.base.masking import without_passwords
from penstock.config import StreamsConfig
from penstock.connect.worker.operations import HIDDEN, Hiding
from penstock.errors import PenstockError

SECRET = "s3cr3t-w0rd"


@pytest.mark.parametrize(
    "text",
    [
        f"http://ann:{SECRET}@host:8081/path", f"http://ann:{SECRET}@x@host/", f"http://:{SECRET}@host",
        f"jdbc:postgresql://db/shop?user=ann&password={SECRET}", f"jdbc:sqlserver://db;user=a;password={SECRET};x=1",
        f"https://host/?a=1&api_key={SECRET}#x", f"https://host/?client_secret={SECRET}", f"s3://b/k?sslpassword={SECRET}",
        f"amqp://ann:{SECRET}@a,amqp://bob:{SECRET}@b",
        f"https://host/?token={SECRET}&page=2", f"https://host/x?sv=1&sig={SECRET}", f"https://host/?key={SECRET * 2}",
        f"https://host/?auth={SECRET}#x", f"https://host/?X-Amz-Credential=a&X-Amz-Security-Token={SECRET}",
    ],
)  # fmt: skip
def test_urls(text: str) -> None:
    shown = without_passwords(f"{text!r} does not answer, nor does {text}")
    assert SECRET not in shown
    assert "does not answer" in shown
    assert SECRET not in str(PenstockError(text, hint=text))


@pytest.mark.parametrize(
    "text",
    ["http://localhost:8081/subjects/a@b", "a:b@c", "http://host/x?page=1&sort=name", "mail ann@b.c",
             "http://host/stores/counts?key=ann&keys=2", "https://host/?author=ann&design=b"],
)  # fmt: skip
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_passwords(text) == text


def test_lines_of_a_text_log_have_stars() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    log = own_logger("another.secrets")
    log.addHandler(handler)
    try:
        int("x")
    except ValueError as error:
        at = error.__traceback__
    log.warning("%s and %s", f"http://a:{SECRET}@h", PenstockError(f'sasl.password="{SECRET}"'))
    log.error("failed", exc_info=ValueError(f"password={SECRET}").with_traceback(at))
    log.warning("Authorization: %s", f"Bearer {SECRET}")
    log.removeHandler(handler)
    assert SECRET not in written.getvalue()
    assert "***" in written.getvalue()


SECRETS = ("sasl.password", "ssl.keystore.password", "sasl.jaas.config", "consumer.ssl.key.password", "db.passwd",
           "client.secret", "http.headers.authorization", "penstock.alerts.webhook", "penstock.console.token",
           "header.X-Api-Key", "api_key", "accessKey", "headers.Cookie", "db.pass", "private.key", "azure.account.key",
           "shared_access_key", "signing-key", "x.jwt")  # fmt: skip


def test_settings() -> None:
    from penstock.base.secrets import masked

    found = masked({**dict.fromkeys(SECRETS, SECRET), "url": f"http://a:{SECRET}@h/", "group.id": "g"})
    assert SECRET not in str(found)
    assert found["group.id"] == "g"
    plain = {"ssl.key.location": "/k", "sasl.oauthbearer.token.endpoint.url": "http://t", "key.path": "id",
             "private.key.file": "/p", "compass": "north", "key": "k"}  # fmt: skip
    assert masked(plain) == plain
    config = StreamsConfig(
        {"application.id": "a", "penstock.console.token": SECRET, "penstock.alerts.webhook": f"https://h/{SECRET}"}
    )
    assert SECRET not in repr(config)


def test_spark_hides_the_settings_that_are_hidden_here() -> None:
    from penstock.base.secrets import is_secret
    from penstock.engines.spark.session import _REDACTED

    for name in (*SECRETS, "hadoop.fs.azure.account.key.store.dfs.core.windows.net", "hadoop.fs.s3a.secret.key"):
        assert is_secret(f"spark.{name}")
        assert re.search(_REDACTED, f"spark.{name}")
    assert not re.search(_REDACTED, "spark.executorEnv.HOME")


class _Plain:
    """Providers without references."""

    def resolve(self, config: dict[str, str]) -> dict[str, str]:
        raise LookupError(config)


def test_a_connectors_url_hides_its_password_and_keeps_it_when_it_is_sent_back() -> None:
    hiding = Hiding(None, _Plain(), None, enabled=True)  # type: ignore[arg-type]
    stored = {"connection.url": f"jdbc:postgresql://db/x?password={SECRET}", "a.password": SECRET, "topics": "t"}
    shown = hiding.shown(stored)
    assert SECRET not in str(shown)
    assert (shown["a.password"], shown["topics"]) == (HIDDEN, "t")
    assert hiding.kept({**shown, "topics": "u"}, stored) == {**stored, "topics": "u"}
