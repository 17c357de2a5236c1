"""Deletion of processed records of repartition topics goes on when no new records come."""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from eventually import eventually
from penstock.engines.threads.loop.commit import Purger
from penstock.log.base import TopicPartition
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from threads import append

PLACES = [TopicPartition("repartitioned", number) for number in range(3)]


@pytest.fixture
def log() -> Iterator[EmbeddedLog]:
    with open_log(f"memory://{uuid.uuid4().hex}") as made:
        assert isinstance(made, EmbeddedLog)
        yield made


def fill(log: EmbeddedLog) -> None:
    log.create_topic("repartitioned", len(PLACES))
    for place in PLACES:
        append(log, place.topic, [("k", "v", 1)] * 10, place.partition)


def firsts(log: EmbeddedLog) -> list[int]:
    return list(log.beginning_offsets(["repartitioned"]).values())


def test_what_came_within_the_interval_is_deleted_after_it(log: EmbeddedLog) -> None:
    fill(log)
    now = 0.0
    purger = Purger(log, {"repartitioned"}, 1_000, lambda: now)
    for at, offset in ((1.0, 3), (1.5, 7)):
        now = at
        purger.note(dict.fromkeys(PLACES, offset))
        purger.begin_if_due()
        eventually(lambda: firsts(log) == [3, 3, 3])
    now = 2.0
    eventually(lambda: (purger.begin_if_due(), firsts(log) == [7, 7, 7])[1])


def test_a_deletion_that_failed_is_tried_again_and_said_once(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries, real = [0], log.purge

    def purge(before: Any) -> None:
        tries[0] += 1
        real(before)

    monkeypatch.setattr(log, "purge", purge)
    ticks = itertools.count()
    purger = Purger(log, {"repartitioned"}, 0, lambda: float(next(ticks)))
    purger.note(dict.fromkeys(PLACES, 3))
    with caplog.at_level(logging.INFO, "penstock"):
        eventually(lambda: (purger.begin_if_due(), tries[0] > 3)[1])  # there is no such topic yet
        fill(log)
        eventually(lambda: (purger.begin_if_due(), firsts(log) == [3, 3, 3])[1])
    assert len([each for each in caplog.records if each.getMessage().startswith("Records of repartitioned below")]) == 1
