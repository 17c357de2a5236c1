from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pytest

from penstock.errors import ConfigError, FencedError, InvalidStateError, LogError
from penstock.log.base import TopicPartition
from penstock.log.open import open_log
from penstock.log.url import parse_log_url

WRITER = """
import sys, pyarrow as pa
from penstock.log.open import open_log
log = open_log(sys.argv[1])
batch = pa.RecordBatch.from_pydict({"value": [b"x" * 100] * 500})
number = 1 + max(log.ledger("app").values(), default=-1)
print("ready", flush=True)
while True:
    with log.transaction("app-0") as transaction:
        transaction.append("t", 0, batch)
        transaction.append("t", 1, batch)
        transaction.put_ledger("app", "0", number)
    number += 1
"""
LEASER = """
import sys, time
from penstock.log.open import open_log
open_log(sys.argv[1]).acquire_lease("app", "other")
print("ready", flush=True)
time.sleep(60)
"""


def start(code, path):
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def one(value=b"a"):
    return pa.RecordBatch.from_pydict({"value": [value]})


def append_many(path, count, value):
    with open_log(path) as log:
        for _ in range(count):
            log.append("t", 0, one(value))


def test_urls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse_log_url("sqlite:///a.db").path == tmp_path / "a.db"
    assert parse_log_url(f"sqlite:///{tmp_path}/a.db").path == tmp_path / "a.db"
    assert parse_log_url("a.db").url == f"sqlite:///{tmp_path}/a.db"
    assert parse_log_url("a.db?synchronous=normal").url.endswith("a.db?synchronous=normal")
    for bad in ["sqlite://host/a.db", "kafka://x", "sqlite:///", "a.db?sync=1", "a.db?synchronous=maybe"]:
        with pytest.raises(ConfigError):
            parse_log_url(bad)


def test_kill_leaves_all_or_nothing(tmp_path):
    path = tmp_path / "log.db"
    with open_log(path) as log:
        log.create_topic("t", 2)
        for _ in range(3):
            process = start(WRITER, path)
            before = log.version()
            deadline = time.monotonic() + 60
            while log.version() == before and time.monotonic() < deadline:
                time.sleep(0.01)
            kill(process)
            assert log.version() > before
            written = log.ledger("app")["0"] + 1
            assert set(log.end_offsets(["t"]).values()) == {written * 500}
            assert sum(part.num_rows for part in log.iterate("t", 1, 0, written * 500)) == written * 500


def test_lease_of_a_dead_process_is_free_at_once(tmp_path):
    path = tmp_path / "log.db"
    with open_log(path) as log:
        process = start(LEASER, path)
        with pytest.raises(FencedError, match=f"process {process.pid}"):
            log.acquire_lease("app", "me")
        kill(process)
        assert log.acquire_lease("app", "me").epoch == 2


def test_processes_append_at_once(tmp_path):
    path = str(tmp_path / "log.db")
    with open_log(path) as log:
        log.create_topic("t")
        context = multiprocessing.get_context("fork")
        processes = [context.Process(target=append_many, args=(path, 100, b"%d" % i)) for i in range(4)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
            assert process.exitcode == 0
        found = log.read("t", 0, 0).records
        assert found.column("offset").to_pylist() == list(range(400))
        assert sorted(found.column("value").to_pylist()) == sorted([b"%d" % i for i in range(4)] * 100)


def test_threads_share_a_log(tmp_path):
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("t")
        threads = [threading.Thread(target=lambda: [log.append("t", 0, one()) for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert log.end_offset("t", 0) == 200


def test_an_open_log_survives_a_fork(tmp_path):
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("t")
        log.append("t", 0, one())
        child = multiprocessing.get_context("fork").Process(target=lambda: log.append("t", 0, one(b"child")))
        child.start()
        child.join()
        assert child.exitcode == 0
        log.append("t", 0, one())
        assert log.read("t", 0, 0).records.column("value").to_pylist() == [b"a", b"child", b"a"]


def test_other_files_are_refused(tmp_path):
    text = tmp_path / "text.db"
    text.write_text("not a database at all, but long enough to have a header\n" * 100)
    with pytest.raises(LogError, match="is not a Penstock log"):
        open_log(text)
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE users (name TEXT)")
    connection.close()
    with pytest.raises(LogError, match="not a Penstock log"):
        open_log(other)
    newer = tmp_path / "newer.db"
    open_log(newer).close()
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(LogError, match="format 99"):
        open_log(newer)
    with pytest.raises(LogError, match="directory of the log does not exist"):
        open_log(tmp_path / "none" / "log.db")


def test_a_log_keeps_its_identity(tmp_path):
    path = tmp_path / "log.db"
    with open_log(path) as log:
        log.create_topic("t")
        first, ids = log.identity(), log.topic_ids(["t"])
    with open_log(path) as log:
        assert (log.identity(), log.topic_ids(["t"])) == (first, ids)
    with open_log(tmp_path / "other.db") as log:
        assert log.identity() != first


def test_a_log_of_an_earlier_version_is_given_an_identity(tmp_path):
    path = tmp_path / "log.db"
    with open_log(path) as log:
        log.create_topic("t")
    with sqlite3.connect(path) as connection:  # what earlier versions have not made
        connection.executescript(
            "DROP TRIGGER topic_created; DROP TRIGGER topic_deleted; DROP TABLE topic_ids; DROP TABLE identity"
        )
    connection.close()
    with open_log(path) as log:
        first, ids = log.identity(), log.topic_ids(["t"])
    assert first
    assert set(ids) == {"t"}
    with open_log(path) as log:
        assert (log.identity(), log.topic_ids(["t"])) == (first, ids)
    with sqlite3.connect(path) as connection:  # as an earlier version makes a topic
        connection.execute("INSERT INTO topics (name, config, created_ms) VALUES ('u', '{}', 0)")
    connection.close()
    with open_log(path) as log:
        assert set(log.topic_ids(["t", "u"])) == {"t", "u"}


def test_disk_full_keeps_nothing(tmp_path):
    with open_log(tmp_path / "log.db?compression=none") as log:
        log.create_topic("t", 2)
        log.append("t", 0, one())
        with log._database.reading() as connection:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(LogError, match="disk is full"), log.transaction("x") as transaction:  # noqa: PT012
            transaction.append("t", 0, one())
            transaction.append("t", 1, one(b"x" * 500_000))
        assert log.end_offsets(["t"]) == {TopicPartition("t", 0): 1, TopicPartition("t", 1): 0}


def test_closed(tmp_path):
    log = open_log(tmp_path / "log.db")
    log.close()
    log.close()
    with pytest.raises(InvalidStateError, match="is closed"):
        log.topics()


def test_a_log_in_memory_stays_in_its_process():
    log = open_log("memory://")
    log.create_topic("t")
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)

    def child():
        try:
            log.topics()
        except LogError as error:
            sending.send(str(error))

    process = context.Process(target=child)
    process.start()
    assert "lives in the memory of process" in receiving.recv()
    process.join()
    receiving.close()
    sending.close()
    log.close()
