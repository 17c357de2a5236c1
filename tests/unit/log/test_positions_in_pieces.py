"""Loops that read in pieces, with a position: an end or an error between any two pieces loses nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from penstock.cli.topics.records import TextConsumer
from penstock.connect.storage.topic_table import TableChange, TopicTable
from penstock.connect.worker_client import Tap
from penstock.errors import LogUnavailableError
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log

PLACES = 3
ROWS = 4


class _Interrupted:
    """A log that cannot be reached at one of its reads."""

    def __init__(self, log: EmbeddedLog, fails_at: int) -> None:
        self._log = log
        self._left = fails_at

    def read(self, *args: Any) -> Any:
        self._left -= 1
        if not self._left:
            raise LogUnavailableError("no broker answers")
        return self._log.read(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


@pytest.fixture
def log() -> Iterator[EmbeddedLog]:
    with open_log(f"memory://{uuid.uuid4().hex}") as opened:
        opened.create_topic("t", PLACES, {"cleanup.policy": "compact"})
        for partition in range(PLACES):
            keys = pa.array([f"{partition}{n}".encode() for n in range(ROWS)], pa.large_binary())
            opened.append("t", partition, pa.RecordBatch.from_pydict({"key": keys, "value": keys}))
        yield opened


ALL = [f"{partition}{n}" for partition in range(PLACES) for n in range(ROWS)]


@pytest.mark.parametrize("fails_at", range(1, PLACES + 1))
def test_a_table_of_connect_keeps_what_it_could_not_return(log: EmbeddedLog, fails_at: int) -> None:
    table = TopicTable(_Interrupted(log, fails_at), "t", PLACES)  # type: ignore[arg-type] # it has all of a log
    with pytest.raises(LogUnavailableError):
        table.refresh()
    assert table.refresh() == [TableChange(key.encode(), key.encode()) for key in ALL]
    assert table.refresh() == []
    table.close()


@pytest.mark.parametrize("taken", range(1, len(ALL)))
def test_a_tap_goes_on_behind_the_last_record_that_was_taken(log: EmbeddedLog, taken: int) -> None:
    tap = Tap(log, ["t"], {}, from_start=True)
    found = [record.value for record in islice(tap.read(), taken)]
    assert found + [record.value for record in tap.read()] == ALL


@pytest.mark.parametrize("taken", range(1, len(ALL)))
def test_a_reader_of_commands_goes_on_behind_the_last_record_that_was_taken(log: EmbeddedLog, taken: int) -> None:
    consumer = TextConsumer(log, "t", None, None)
    found = [row["value"] for row in islice(consumer.poll(), taken)]
    assert found + [row["value"] for row in consumer.poll()] == ALL


@pytest.mark.parametrize("fails_at", range(1, PLACES + 1))
def test_a_reader_of_commands_whose_log_is_away_reads_on(log: EmbeddedLog, fails_at: int) -> None:
    consumer = TextConsumer(_Interrupted(log, fails_at), "t", None, None)  # type: ignore[arg-type] # it has all of a log
    found: list[str] = []
    for _ in range(2):
        with suppress(LogUnavailableError):
            found.extend(row["value"] for row in consumer.poll())
    assert found == ALL
