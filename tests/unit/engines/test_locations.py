from __future__ import annotations

import logging
from pathlib import Path

import pytest

from penstock import StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.application import locations as module
from penstock.engines.application.locations import Locations
from penstock.engines.application.planning import plan_for
from penstock.engines.application.stored_plans import resumable_plan
from penstock.errors import CheckpointMismatchError, ConfigError
from penstock.log.open import open_log
from penstock.state.checkpoint import write_document


def config(url, **more):
    return StreamsConfig({"application.id": "app", "bootstrap.servers": str(url), **more})


def test_the_default_is_beside_the_log_and_shared_by_nobody(tmp_path):
    places = Locations.of(config(tmp_path / "logs.db"))
    assert places.checkpoint == str(tmp_path / "logs.db.penstock" / "app" / "checkpoint")
    assert places.replicas == str(tmp_path / "logs.db.penstock" / "app" / "replicas")
    assert Locations.of(config(f"sqlite:///{tmp_path}/other.db?synchronous=off")).checkpoint != places.checkpoint
    places.prepare()
    home = tmp_path / "logs.db.penstock"
    folders = [path for path in home.rglob("*") if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in [home, *folders]} == {0o700}
    assert Path(places.checkpoint, "spark") in folders


def test_over_kafka_it_is_the_users_by_cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with open_log("memory://") as log:  # a log is asked for its identity, whatever it is
        found = Locations.of(config("localhost:9092"), log)
        assert found.checkpoint == str(tmp_path / "penstock" / log.identity() / "app" / "checkpoint")


def test_settings_win(tmp_path):
    found = Locations.of(
        config("a.db", **{"state.dir": str(tmp_path), "penstock.checkpoint.location": "s3://bucket/x/"})
    )
    assert (found.checkpoint, found.replicas) == ("s3://bucket/x", str(tmp_path / "app" / "replicas"))
    with pytest.raises(ConfigError, match="cannot name a folder"):
        Locations.of(config("a.db", **{"application.id": ".."}))


def test_a_checkpoint_at_the_old_default_is_named(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    old = tmp_path / "tmp" / "penstock" / "app" / "checkpoint"
    write_document(str(old), "plan.json", '{"plan": {"application": "app"}}')
    builder = StreamsBuilder()
    builder.stream("t").to("out")
    settings = config(tmp_path / "logs.db")
    checkpoint = Locations.of(settings).checkpoint
    with open_log(str(tmp_path / "logs.db")) as log:
        log.create_topic("t")
        plan = plan_for(builder.build(), settings, log)
        with caplog.at_level(logging.WARNING):
            assert resumable_plan(checkpoint, {}, plan, log) is None
        assert str(old) in caplog.text
        with log.transaction("app-0_0") as transaction:
            transaction.put_ledger("app", "0_0", 3)
        with pytest.raises(CheckpointMismatchError, match=f"mv {old} {checkpoint}"):
            resumable_plan(checkpoint, {}, plan, log)
