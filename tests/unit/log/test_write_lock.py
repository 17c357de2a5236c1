"""The write lock of an embedded log that other processes hold."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

import pyarrow as pa
import pytest

from penstock.errors import LogError
from penstock.log.embedded import database
from penstock.log.open import open_log

ONE = pa.RecordBatch.from_pydict({"timestamp": [1], "key": [b"a"], "value": [b"x"]})


@pytest.fixture
def log(tmp_path):
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        log.create_topic("words", 1)
        yield log


@pytest.fixture
def other(tmp_path, log):
    with closing(sqlite3.connect(tmp_path / "log.db", isolation_level=None, check_same_thread=False)) as connection:
        yield connection


def test_a_write_waits_until_another_process_lets_go(log, other):
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.05, other.execute, ["ROLLBACK"]).start()
    log.append("words", 0, ONE)
    assert log.end_offset("words", 0) == 1


def test_other_threads_read_while_a_write_waits(log, other):
    log.append("words", 0, ONE)
    other.execute("BEGIN IMMEDIATE")
    writers = [threading.Thread(target=log.append, args=("words", 0, ONE)) for _ in range(3)]
    for writer in writers:
        writer.start()
    ends = []
    for _ in range(3):
        reader = threading.Thread(target=lambda: ends.append(log.end_offset("words", 0)))
        reader.start()
        reader.join(30)
    waiting = [writer.is_alive() for writer in writers]
    other.execute("ROLLBACK")
    assert (ends, waiting) == ([1, 1, 1], [True, True, True])
    for writer in writers:
        writer.join(30)
    assert log.end_offset("words", 0) == 4


def test_a_lock_that_is_never_released_is_an_error_that_names_the_file(monkeypatch, tmp_path, log, other):
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.02)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LogError, match=r"log\.db: another process has held the write lock"):
        log.append("words", 0, ONE)
    other.execute("ROLLBACK")
    log.append("words", 0, ONE)
    assert log.end_offset("words", 0) == 1


def test_reads_wait_as_long_as_before(log):
    log.append("words", 0, ONE)
    with vars(log)["_database"].reading() as connection:
        assert connection.execute("PRAGMA busy_timeout").fetchone() == (60_000,)
