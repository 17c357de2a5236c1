"""How records reach a task in real-time mode: at once, together if several wait, and errors too."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from penstock.spark.realtime_input import arrivals

ONE = pa.RecordBatch.from_pydict({"n": [1]})


def rows(found: list[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in found)


def test_what_waits_comes_together_and_nothing_is_an_empty_list():
    more = threading.Event()

    def source():
        yield ONE
        yield ONE
        more.wait(10)
        yield ONE

    seen = []
    for found in arrivals(source(), 0.05):
        seen.append(rows(found))
        if seen[-1] == 0:
            more.set()
    assert sum(seen) == 3
    assert 0 in seen


def test_what_comes_often_shares_the_pace():
    found = list(arrivals([ONE] * 20, 10, pace_s=0.2))
    assert sum(map(rows, found)) == 20
    assert len(found) <= 2


def test_an_error_comes_after_what_came_before_it():
    def source():
        yield ONE
        raise EOFError("gone")

    found = arrivals(source(), 10)
    assert rows(next(found)) == 1
    with pytest.raises(EOFError):
        next(found)


def test_an_empty_batch_ends_at_once():
    assert list(arrivals(iter(()), 10)) == []
