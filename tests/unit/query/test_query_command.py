"""`penstock query` over a checkpoint alone, and over a server."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.config import StreamsConfig
from penstock.engines.application.locations import Locations
from penstock.errors import ConfigError, StateError
from penstock.log.base import TopicPartition
from penstock.log.open import open_log
from penstock.query.http.server import QueryServer
from penstock.query.http.service import QueryService
from penstock.query.source import specs_in_plan, stores_for_plan

from .conftest import SPECS, T


@pytest.fixture
def asked(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    document = json.loads((tmp_path / "checkpoint" / "plan.json").read_text())
    checkpoint.write("plan.json", json.dumps({**document, "stores": stores_for_plan(SPECS)}))
    checkpoint.fill()
    return lambda *args: run("query", *args, "--checkpoint", checkpoint.location)


def run(*args):
    result = CliRunner().invoke(app, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_what_the_checkpoint_notes_of_stores_is_enough():
    found = specs_in_plan(json.loads(json.dumps(stores_for_plan(SPECS))))
    assert {name: (spec.kind, spec.ttl_ms, spec.key_serde.name) for name, spec in found.items()} == {
        name: (spec.kind, spec.ttl_ms, spec.key_serde.name) for name, spec in SPECS.items()
    }


def test_keys_ranges_and_prefixes(asked):
    assert json.loads(asked("counts", "k3", "--json"))["value"] == 3
    assert asked("counts", "k3").split("\n")[1].split() == ["k3", "3", "2026-09-21T14:13:20.003Z"]
    entries = json.loads(asked("plain", "--range", "k1..k3", "--json"))["entries"]
    assert [entry["key"] for entry in entries] == ["k1", "k2", "k3"]
    assert json.loads(asked("plain", "--prefix", "k5", "--json"))["entries"][0]["value"] == "v5"
    text = asked("plain", "--limit", "2")
    assert "there are more" in text
    assert "batch 0" in text


def test_windows_sessions_and_versions(asked):
    found = json.loads(asked("windows", "k2", "--window", f"{T + 1}..", "--json"))["entries"]
    assert [(entry["start"], entry["value"]) for entry in found] == [(T + 1000, 12)]
    assert len(json.loads(asked("windows", "--json"))["entries"]) == 12
    assert json.loads(asked("sessions", "k2", "--json"))["entries"][0]["end"] == T + 50
    assert json.loads(asked("versions", "k2", "--as-of", str(T + 1), "--json"))["value"] == "old"


def test_stores(asked):
    assert "session" in asked("stores")
    assert {store["name"] for store in json.loads(asked("stores", "--json"))} == set(SPECS)


def test_of_a_server(asked, state):
    server = QueryServer(QueryService(state))
    server.start()
    try:

        def ask(*args):
            return json.loads(run("query", *args, "--url", server.url, "--json"))

        assert ask("counts", "k3")["value"] == 3
        assert len(ask("counts", "--range", "k1..")["entries"]) == 5
        assert len(ask("counts", "--prefix", "k")["entries"]) == 6
        assert len(ask("windows", "k2")["entries"]) == 2
        assert len(ask("sessions")["entries"]) == 6
        assert len(ask("stores")) == len(SPECS)
        with pytest.raises(StateError, match="Did you mean counts"):
            ask("count", "k3")
    finally:
        server.close()
    with pytest.raises(StateError, match="does not answer"):
        ask("counts", "k3")


def test_errors(asked, tmp_path):
    with pytest.raises(StateError, match="has no key 'none'"):
        asked("counts", "none")
    with pytest.raises(ConfigError, match="there is no module 'counts'"):
        run("query", "counts", "k")
    with pytest.raises(StateError, match="no checkpoint of an application"):
        run("query", "counts", "k", "--checkpoint", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"not FROM\.\.TO"):
        asked("plain", "--range", "a-b")


def test_an_application_is_found_by_its_id_in_the_log(asked, checkpoint, tmp_path, state, monkeypatch):
    asked("stores")  # fills the checkpoint
    name = json.loads((tmp_path / "checkpoint" / "plan.json").read_text())["plan"]["application"]
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    url = f"sqlite:///{tmp_path / 'log.db'}"
    with open_log(url) as log:
        log.create_topic("t")
        lease = log.acquire_lease(name, "here")
        log.commit_offsets(name, {TopicPartition("t", 0): 0}, "", lease)
        log.release_lease(lease)
    place = Locations.of(StreamsConfig({"application.id": name, "bootstrap.servers": url})).checkpoint
    shutil.copytree(checkpoint.location, place)
    monkeypatch.setitem(sys.modules, name, module)  # a module of the same name, without a topology
    assert json.loads(run("query", name, "counts", "k3", "-b", url, "--json"))["value"] == 3
    assert json.loads(run("query", "get", name, "counts", "k3", "-b", url, "--json"))["value"] == 3
    assert {store["name"] for store in json.loads(run("query", "stores", name, "-b", url, "--json"))} == set(SPECS)
    with pytest.raises(ConfigError, match="no module and no application 'shop'") as caught:
        run("query", "get", "shop", "counts", "k3", "-b", url)
    assert name in caught.value.hint
    with pytest.raises(ConfigError, match="there is no module 'shop'") as caught:
        run("query", "get", "shop", "counts", "k3")
    assert "--bootstrap-servers" in caught.value.hint


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_server_of_its_own(asked, checkpoint, how):
    command = [sys.executable, "-m", "penstock.cli.main", "query", "serve", "--checkpoint", checkpoint.location]
    server = subprocess.Popen([*command, "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        line = server.stderr.readline()
        url = re.search(r"http://[0-9.:]+", line).group()
        with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
            answer = http.get("/stores/counts/keys/k3").json()
            assert (answer["value"], answer["role"], answer["host"]) == (3, "standby", url.removeprefix("http://"))
            assert [one["role"] for one in http.get("/").json()["instances"]] == ["standby"]
        server.send_signal(how)
        assert server.wait(120) == 0
        assert list(Path(checkpoint.location, "instances").iterdir()) == []
    finally:
        server.kill()
        server.communicate()
