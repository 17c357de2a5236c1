"""Secrets that stand in an argument or a URL are not shown again."""

from __future__ import annotations

import logging

import pytest

from penstock.cli.options import read_config
from penstock.cli.servers.users import collect_users
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, PenstockError
from penstock.log.open import warn_of_plain_text


@pytest.mark.parametrize("pair", ["sasl.password:hush", "sasl.password hush", "ssl.key.password'hush"])
def test_a_pair_without_an_equals_sign_is_shown_up_to_its_name(pair):
    with pytest.raises(ConfigError) as refused:
        read_config([pair], None)
    assert "hush" not in str(refused.value)
    assert "sasl" in str(refused.value) or "ssl" in str(refused.value)


def test_a_pair_of_no_secret_is_shown_as_it_is():
    with pytest.raises(ConfigError, match=r"'application\.id shop' is not KEY=VALUE"):
        read_config(["application.id shop"], None)


def test_a_secret_in_an_argument_is_warned_of(capsys):
    read_config(["sasl.password=hush", "application.id=shop", "sasl.jaas.config=${env:JAAS}"], None)
    warned = capsys.readouterr().err
    assert warned.count("can be read by every user") == 1
    assert "hush" not in warned


def test_a_secret_with_two_values():
    with pytest.raises(ConfigError) as refused:
        StreamsConfig({"bootstrap.servers": "http://ann:hush@a", "bootstrap_servers": "http://ann:hush@b"})
    assert "hush" not in str(refused.value)


def test_passwords_in_urls_are_in_no_error():
    error = PenstockError("https://ann:hush@registry.example:8081 does not answer", hint="Ask http://ann:hush@host")
    assert "hush" not in f"{error} {error.message} {error.hint}"
    assert "ann:***@registry.example:8081" in error.message


def test_passwords_of_users(tmp_path, monkeypatch):
    file = tmp_path / "users"
    file.write_text("# readers\nann:one\n\n")
    monkeypatch.setenv("PENSTOCK_USERS", "bob:two\ncarl:th:ree")
    assert collect_users(["bob", "carl"], file) == {"ann": "one", "bob": "two", "carl": "th:ree"}
    for names in (["dora"], ["dora:hush"]):
        with pytest.raises(ConfigError) as refused:
            collect_users(names, None)
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("servers", "protocol", "mechanism", "warns"),
    [
        ("broker.example:9092", "SASL_PLAINTEXT", "PLAIN", True),
        ("localhost:9092", "SASL_PLAINTEXT", "PLAIN", False),
        ("broker.example:9092", "SASL_SSL", "PLAIN", False),
        ("broker.example:9092", "SASL_PLAINTEXT", "SCRAM-SHA-512", False),
    ],
)
def test_a_login_in_plain_text_is_warned_of(caplog, servers, protocol, mechanism, warns):
    settings = {
        "security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.username": "ann", "sasl.password": "hush",
    }  # fmt: skip
    with caplog.at_level(logging.WARNING):
        warn_of_plain_text(servers, settings)
    assert ("in plain text" in caplog.text) is warns
    assert "hush" not in caplog.text
