from __future__ import annotations

import threading
import time

import pytest

from penstock.errors import LogError

DAY_MS = 86_400_000


def now_ms():
    return time.time_ns() // 1_000_000


def table(log):
    found = log.read("t", 0, log.beginning_offset("t", 0)).records
    return dict(zip(found.column("offset").to_pylist(), found.column("value").to_pylist(), strict=True))


def test_retention_by_time(log, batch):
    log.create_topic("t", 1, {"retention.ms": str(DAY_MS)})
    now = now_ms()
    log.append("t", 0, batch([b"old"], timestamps=[1]))
    log.append("t", 0, batch([b"ahead"], timestamps=[now + 3 * DAY_MS]))
    log.clean(now)
    assert len(table(log)) == 2  # old by its timestamp, but appended just now
    log.clean(now + 2 * DAY_MS)
    assert table(log) == {1: b"ahead"}
    log.clean(now + 9 * DAY_MS)
    assert log.beginning_offset("t", 0) == log.end_offset("t", 0) == 2


def test_an_append_begins_a_cleaning_and_does_not_wait_for_it(log, batch, monkeypatch):
    may_go_on, cleaned_by = threading.Event(), []
    clean = type(log).clean

    def held_up(self, now=None):
        cleaned_by.append(threading.current_thread())
        assert may_go_on.wait(120)
        clean(self, now)

    monkeypatch.setattr(type(log), "clean", held_up)
    monkeypatch.setattr("penstock.log.embedded.upkeep.CLEAN_EVERY_MS", 0)
    log.create_topic("t", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    log.append("t", 0, batch([b"old"], keys=[b"k"]))
    assert not cleaned_by  # the log is new
    log.append("t", 0, batch([b"new"], keys=[b"k"]))
    assert len(table(log)) == 2
    log.append("t", 0, batch([b"newer"], keys=[b"k"]))
    may_go_on.set()
    log.wait_for_cleaner()
    assert len(cleaned_by) == 1
    assert cleaned_by[0] is not threading.current_thread()
    assert table(log) == {2: b"newer"}


def test_no_retention(log, batch):
    log.create_topic("t", 1, {"retention.ms": "-1"})
    log.append("t", 0, batch([b"a"]))
    log.clean(now_ms() + 10_000 * DAY_MS)
    assert table(log) == {0: b"a"}


def test_retention_by_size(log, batch):
    log.create_topic("t", 1, {"retention.bytes": "3000", "compression.type": "uncompressed"})
    for i in range(10):
        log.append("t", 0, batch([b"%d" % i * 1000]))
    log.clean()
    assert 1 <= len(table(log)) <= 3
    assert log.end_offset("t", 0) == 10
    log.alter_config("t", {"retention.bytes": "1"})
    log.clean()
    assert list(table(log)) == [9]


def test_compaction_keeps_the_last_of_each_key(log, batch):
    settings = {"delete.retention.ms": str(DAY_MS), "min.cleanable.dirty.ratio": "0"}
    log.create_topic("t", 1, {"cleanup.policy": "compact", **settings})
    with pytest.raises(LogError, match="without a key"):
        log.append("t", 0, batch([b"x"]))
    log.append("t", 0, batch([b"1", b"2", b"3"], [b"a", b"b", b"a"]))
    log.append("t", 0, batch([b"4", None], [b"c", b"b"]))
    now = now_ms()
    log.clean(now)
    assert table(log) == {2: b"3", 3: b"4", 4: None}
    assert (log.beginning_offset("t", 0), log.end_offset("t", 0)) == (0, 5)
    assert log.read("t", 0, 0, 1).next_offset == 3
    log.append("t", 0, batch([b"5"], [b"c"]))
    log.compact("t", 0, now + 2 * DAY_MS)
    assert table(log) == {2: b"3", 5: b"5"}
    log.append("t", 0, batch([None, None], [b"a", b"c"]))
    log.compact("t", 0, now + 3 * DAY_MS)
    assert table(log) == {7: None}
    assert log.read("t", 0, 0).next_offset == 8
    assert log.append("t", 0, batch([b"9"], [b"z"])) == 8
    log.compact("t", 0, now_ms() + DAY_MS + 1)
    assert table(log) == {8: b"9"}


def test_min_compaction_lag(log, batch):
    log.create_topic("t", 1, {"cleanup.policy": "compact", "min.compaction.lag.ms": str(DAY_MS)})
    log.append("t", 0, batch([b"1", b"2"], [b"a", b"a"]))
    log.clean(now_ms())
    assert len(table(log)) == 2
    log.clean(now_ms() + 2 * DAY_MS)
    assert table(log) == {1: b"2"}


def test_stats(log, batch):
    log.create_topic("t", 2)
    log.append("t", 1, batch([b"a" * 1000] * 10))
    empty, full = log.stats().values()
    assert (empty.records, empty.bytes, empty.min_timestamp) == (0, 0, None)
    assert (full.records, full.batches, full.end_offset, full.min_timestamp) == (10, 1, 10, 1_000)
    assert 0 < full.bytes < full.raw_bytes
