"""A start of stream threads with another `dsl.store.format` than the stores were written with."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Materialized, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.application.planning import PlannedApp, plan_for
from penstock.engines.threads.hosting.epoch_start import NewEpoch, prepare_epoch
from penstock.errors import CheckpointMismatchError
from penstock.log.open import open_log


def test_a_start_with_another_format_is_refused(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(Materialized("counts"))
    topology = builder.build()
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        log.create_topic("in", 1)

        def start(format_: str) -> None:
            settings = {"application.id": "app", "bootstrap.servers": log.url, "state.dir": str(tmp_path)}
            serdes = {"default.key.serde": "string", "default.value.serde": "string"}
            config = StreamsConfig({**settings, **serdes, "dsl.store.format": format_})
            lease = log.acquire_lease("app", "test", force=True)
            app = PlannedApp(topology, config, plan_for(topology, config, log), log)
            prepare_epoch(app, NewEpoch(lease.epoch, 1, lease), None)

        start("DEFAULT")
        with pytest.raises(CheckpointMismatchError, match="'counts' was kept with no headers"):
            start("HEADERS")
        start("plain")
