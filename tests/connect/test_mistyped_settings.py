"""Names of settings that are a letter or two off: of workers, of mirrors, in files and on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.base.nearest_name import mistyped
from penstock.cli.main import app
from penstock.cli.options import read_command_config
from penstock.config.client_names import CLIENT_NAMES
from penstock.connect.data import SettingError
from penstock.connect.mirror.flows import read_flows
from penstock.connect.worker_settings import WorkerConfig, worker_definition
from penstock.errors import ConfigError

WORKER = {
    "bootstrap.servers": "sqlite:///connect.db",
    "offset.storage.file.filename": "offsets",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "group.id": "connect",
    "config.storage.topic": "configs",
    "offset.storage.topic": "offsets",
    "status.storage.topic": "statuses",
}
FLOW = {"clusters": "a,b", "a.bootstrap.servers": "x:1", "b.bootstrap.servers": "y:2", "a->b.enabled": "true"}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("bootstrap.server", "bootstrap.servers"),
        ("bootstrap.severs", "bootstrap.servers"),
        ("bootstrap_servers", "bootstrap.servers"),
        ("BOOTSTRAP.SERVERS", "bootstrap.servers"),
        ("rest.prot", "rest.port"),
        ("listener", "listeners"),
        ("offset.flush.interval", "offset.flush.interval.ms"),
        ("offset.storage.partition", "offset.storage.partitions"),
        ("producer.linger.m", "producer.linger.ms"),
        ("consumer.max.poll.record", "consumer.max.poll.records"),
        ("security.protocl", "security.protocol"),
    ],
)
@pytest.mark.parametrize("mode", ["standalone", "distributed"])
def test_a_worker_refuses_a_mistyped_name_and_says_the_right_one(mode: str, given: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        WorkerConfig.of({**WORKER, given: "x"}, mode)
    assert given in caught.value.message
    assert caught.value.hint == f"Did you mean {meant}?"


@pytest.mark.parametrize("mode", ["standalone", "distributed"])
def test_every_known_name_of_a_worker_is_taken(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    names = [each.name for each in worker_definition(mode).settings.values() if each.name not in WORKER]
    others = [
        "key.converter.schemas.enable", "config.providers.file.class", "offset.storage.segment.ms", "plugin.discovery",
        "status.storage.cleanup.policy", "producer.linger.ms", "ssl.truststore.location", "metrics.context.env",
    ]  # fmt: skip
    for name in (*names, *others):
        try:
            WorkerConfig.of({**WORKER, name: "1"}, mode)
        except ConfigError as error:
            assert "has no setting" not in error.message, name  # noqa: PT017 - the value may be wrong
    assert not [record for record in caplog.records if "not known" in record.getMessage()]


def test_other_unknown_names_of_a_worker_are_named_in_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    WorkerConfig.of({**WORKER, "my.company.team": "x", "producer.my.interceptor": "y"}, "distributed")
    assert "my.company.team, producer.my.interceptor" in caplog.text


@pytest.mark.parametrize("command", ["worker", "standalone"])
def test_a_worker_does_not_start_with_a_mistyped_name(tmp_path: Path, command: str) -> None:
    file = tmp_path / "worker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in WORKER.items()))
    for arguments in (["--set", "bootstrap.server=x:1"], []):
        if not arguments:
            file.write_text(file.read_text() + "bootstrap.server=x:1\n")
        done = CliRunner().invoke(app, ["connect", command, str(file), *arguments])
        assert isinstance(done.exception, ConfigError)
        assert done.exception.hint == "Did you mean bootstrap.servers?"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("a.bootstrap.server", "a.bootstrap.servers"),
        ("a->b.enable", "a->b.enabled"),
        ("a->b.topic", "a->b.topics"),
        ("cluster", "clusters"),
        ("refresh.topics.interval.second", "refresh.topics.interval.seconds"),
        ("b.security.protocl", "b.security.protocol"),
        ("a.producer.linger.m", "a.producer.linger.ms"),
        ("topics.blacklist", "topics.exclude"),
    ],
)
def test_a_mirror_refuses_a_mistyped_name(given: str, meant: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_flows({**FLOW, given: "1"})
    assert caught.value.hint == f"Did you mean {meant}?"


def test_a_file_of_client_settings_refuses_a_mistyped_name(tmp_path: Path) -> None:
    (file := tmp_path / "client.properties").write_text("security.protocl=SSL\n")
    with pytest.raises(ConfigError) as caught:
        read_command_config(file)
    assert "security.protocol" in caught.value.hint


def test_no_known_name_is_taken_for_a_mistyped_other_one() -> None:
    known = [*CLIENT_NAMES, *(each.name for each in worker_definition("distributed").settings.values())]
    assert not [name for name in known if mistyped(name, known)]


@pytest.mark.parametrize(
    ("name", "meant"),
    [("abdc.efgh", "abcd.efgh"), ("abcdefgh", "abcd.efgh"), ("xbcx.efgh", "abcd.efgh"), ("xbcx.efgx", "")],
)
def test_two_edits_are_a_mistake_and_three_another_name(name: str, meant: str) -> None:
    assert mistyped(name, ["abcd.efgh", "other.name"]) == meant
