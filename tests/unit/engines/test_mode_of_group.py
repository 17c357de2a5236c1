"""The mode of an application that has left nothing but its group's offsets: no checkpoint, no note, no ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Materialized, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.application.application_mode import in_own_mode, known_mode, may_have_run, set_mode
from penstock.engines.application.locations import Locations
from penstock.engines.committed_state.continuous_state import ReplicatedState
from penstock.engines.committed_state.micro_batch_state import CommittedState
from penstock.engines.committed_state.opening import open_committed
from penstock.log.base import TopicPartition
from penstock.log.groups.offset_regressions import MARK, RESET_NOTE, epoch_note
from penstock.log.open import open_log

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
BATCH, MOVE = f"{MARK} batch 3", f"{MARK} move 1"
THREAD, DRIVER = epoch_note("stream-thread thread-0", 4), epoch_note("stream-driver", 4)


def config_of(root: Path, **more: Any) -> StreamsConfig:
    settings = {"application.id": "app", "bootstrap.servers": f"sqlite:///{root / 'log.db'}", "state.dir": str(root)}
    return StreamsConfig({**settings, **more})


def commit(config: StreamsConfig, *notes: str) -> None:
    with open_log(config["bootstrap.servers"]) as log:
        log.create_topic("t", 2)
        for tp, note in zip((A, B), notes, strict=False):
            log.commit_offsets("app", {tp: 7}, note)


def mode(config: StreamsConfig) -> str:
    with open_log(config["bootstrap.servers"]) as log:
        return str(in_own_mode(config, log)["processing.mode"])


@pytest.mark.parametrize(
    ("notes", "found"),
    [
        ((BATCH, BATCH), "micro_batch"),
        ((BATCH, RESET_NOTE), "micro_batch"),
        ((MOVE,), "micro_batch"),
        ((THREAD, BATCH), "continuous"),  # threads have taken it over
        ((DRIVER,), "continuous"),
        ((RESET_NOTE, ""), "continuous"),  # the default: nothing is known
        ((), "continuous"),
    ],
)
def test_the_marks_of_the_groups_offsets_say_who_has_set_them(tmp_path: Path, notes: Any, found: str) -> None:
    config = config_of(tmp_path)
    commit(config, *notes)
    assert mode(config) == found
    with open_log(config["bootstrap.servers"]) as log:
        is_unknown = known_mode(config, log) is None and may_have_run(config, log)
        assert is_unknown == (bool(notes) and notes[0] == RESET_NOTE)


def test_settings_and_a_checkpoint_come_first(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    commit(config, BATCH, BATCH)
    assert mode(config_of(tmp_path, **{"processing.mode": "continuous"})) == "continuous"
    with open_log(config["bootstrap.servers"]) as log:
        set_mode(Locations.of(config, log).checkpoint, "continuous")
    assert mode(config) == "continuous"


@pytest.mark.parametrize(
    ("note", "kind"), [(BATCH, CommittedState), (THREAD, ReplicatedState), (RESET_NOTE, ReplicatedState)]
)
def test_a_query_on_another_machine_reads_what_the_applications_mode_keeps(
    tmp_path: Path, note: str, kind: type[Any]
) -> None:
    """The changelogs of micro-batches need not hold all of a store."""
    config = config_of(tmp_path)
    commit(config, note)
    builder = StreamsBuilder()
    builder.stream("t").group_by_key().count(Materialized("n"))
    serdes = {"default.key.serde": "string", "default.value.serde": "string"}
    state = open_committed(builder.build(), config.with_settings(serdes))
    assert isinstance(state, kind)
    state.close()
