"""The embedded log, with gaps, against a dict."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.errors import OffsetOutOfRangeError
from penstock.log.open import open_log

FAR_FUTURE_MS = 10**14
RECORDS = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from([b"a", b"b", b"c", b"d"]), st.sampled_from([b"1", b"2", b"", None])),
    max_size=12,
)
PARTITIONS = st.integers(0, 1)


def batch(rows):
    times, keys, values = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.RecordBatch.from_arrays(
        [pa.array(times, pa.int64()), pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary())],
        names=["timestamp", "key", "value"],
    )


class LogModel(RuleBasedStateMachine):
    @initialize()
    def open(self):
        self.log = open_log("memory://")
        self.log.create_topic("t", 2)
        self.records = [{}, {}]
        self.starts, self.ends = [0, 0], [0, 0]

    def teardown(self):
        if hasattr(self, "log"):
            self.log.close()

    def remember(self, partition, rows):
        for row in rows:
            self.records[partition][self.ends[partition]] = row
            self.ends[partition] += 1

    @rule(partition=PARTITIONS, rows=RECORDS)
    def append(self, partition, rows):
        assert self.log.append("t", partition, batch(rows)) == self.ends[partition]
        self.remember(partition, rows)

    @rule(first=RECORDS, second=RECORDS, fails=st.booleans())
    def transaction(self, first, second, fails):
        try:
            with self.log.transaction("x") as transaction:
                transaction.append("t", 0, batch(first))
                transaction.append("t", 1, batch(second))
                if fails:
                    raise KeyError  # noqa: TRY301
        except KeyError:
            return
        self.remember(0, first)
        self.remember(1, second)

    @rule(partition=PARTITIONS, part=st.floats(0, 1))
    def delete_records(self, partition, part):
        start = self.starts[partition]
        before = start + int((self.ends[partition] - start) * part)
        assert self.log.delete_records("t", partition, before) == before
        self.starts[partition] = before
        self.records[partition] = {at: row for at, row in self.records[partition].items() if at >= before}

    @rule(partition=PARTITIONS)
    def compact(self, partition):
        self.log.compact("t", partition, FAR_FUTURE_MS)
        last = {row[1]: at for at, row in self.records[partition].items()}
        kept = {at: self.records[partition][at] for at in sorted(last.values())}
        newest = self.ends[partition] - 1  # stays whatever it is
        self.records[partition] = {at: row for at, row in kept.items() if row[2] is not None or at == newest}

    @invariant()
    def same(self):
        if not hasattr(self, "log"):
            return
        for partition, expected in enumerate(self.records):
            start, end = self.starts[partition], self.ends[partition]
            assert self.log.beginning_offset("t", partition) == start
            assert self.log.end_offset("t", partition) == end
            parts = self.log.read_range("t", partition, start, end)
            assert [row for part in parts for row in rows_of(part)] == [(at, *row) for at, row in expected.items()]

    @rule(partition=PARTITIONS, size=st.integers(1, 7))
    def read_in_steps(self, partition, size):
        position, found = self.starts[partition], []
        while position < self.ends[partition]:
            fetched = self.log.read("t", partition, position, size)
            assert fetched.next_offset > position
            found += rows_of(fetched.records)
            position = fetched.next_offset
        assert found == [(at, *row) for at, row in self.records[partition].items()]

    @rule(partition=PARTITIONS, first=st.integers(0, 30), length=st.integers(0, 30))
    def read_range(self, partition, first, length):
        start = min(max(first, self.starts[partition]), self.ends[partition])
        if start < start + length and start + length > self.ends[partition]:
            with pytest.raises(OffsetOutOfRangeError, match="not written yet"):
                list(self.log.read_range("t", partition, start, start + length))
            length = self.ends[partition] - start
        parts = self.log.read_range("t", partition, start, start + length)
        expected = [(at, *row) for at, row in self.records[partition].items() if start <= at < start + length]
        assert [row for part in parts for row in rows_of(part)] == expected

    @rule(partition=PARTITIONS, at=st.integers(0, 51))
    def by_time(self, partition, at):
        found = self.log.offset_for_time("t", partition, at)
        expected = next((offset for offset, row in self.records[partition].items() if row[0] >= at), None)
        assert (found.offset if found else None) == expected


def rows_of(records):
    return list(
        zip(*(records.column(name).to_pylist() for name in ("offset", "timestamp", "key", "value")), strict=True)
    )


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
