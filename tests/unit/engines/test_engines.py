"""Both engines are what an application asks of an engine, and one place chooses between them."""

from __future__ import annotations

import pytest

from penstock import StreamsConfig
from penstock.config.setting_types import PROCESSING_MODE
from penstock.engines import application_figures as figures
from penstock.engines import kafka_streams, lifecycle
from penstock.engines.engine import Engine
from penstock.engines.factory import engine_of
from penstock.engines.micro_batches.engine import MicroBatchesEngine
from penstock.engines.threads.engine import StreamThreadsEngine
from penstock.errors import PenstockError

MODES = {"micro_batch": MicroBatchesEngine, "continuous": StreamThreadsEngine}


def engine(mode: str) -> Engine:
    settings = {"application.id": "app", "bootstrap.servers": "memory://engines", "processing.mode": mode}
    return engine_of(StreamsConfig(settings), lambda _: None, reads_nothing=False)


@pytest.mark.parametrize("mode", MODES)
def test_the_settings_choose_the_engine(mode):
    chosen = engine(mode)
    assert type(chosen) is MODES[mode]
    assert chosen.mode == mode
    assert PROCESSING_MODE.read(chosen.mode) == mode


@pytest.mark.parametrize("mode", MODES)
def test_an_engine_that_has_not_started_can_be_asked_and_ended(mode):
    chosen = engine(mode)
    assert not chosen.has_running_tasks()
    assert (chosen.step(), list(chosen.under_way()), list(chosen.long_steps())) == ("", [], [])
    assert (chosen.parallelism, chosen.replicas(), chosen.stored_plan) == (0, {}, None)
    assert not chosen.may_recover(PenstockError("no process was lost"), lambda: False)
    for step in (chosen.suspend, chosen.commit, chosen.note_end, chosen.stop):
        step()


@pytest.mark.parametrize("kind", MODES.values())
def test_the_engines_have_the_same_public_names(kind):
    asked = {name for name in (*vars(Engine), *Engine.__annotations__) if not name.startswith("_")}
    assert {name for name in vars(kind) if not name.startswith("_")} == asked


def test_what_a_terminal_shows_comes_from_one_logger():
    """`KafkaStreams.run` shows the lines of one logger: changes of state, figures, warnings of the start."""
    assert {module._log.name for module in (kafka_streams, lifecycle, figures)} == {"penstock.app"}
