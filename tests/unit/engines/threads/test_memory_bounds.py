"""The memory of a stream thread is bounded in bytes, also with records of a megabyte."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import Consumed, Produced, StreamsBuilder
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from threads import append, new_thread, records_of, settle, thread_app

MEGABYTE = 1 << 20
RECORDS = 48
FETCHED = 4 * MEGABYTE  # what one fetch of the embedded log returns of a partition
TEXT = {"key_serde": "string", "value_serde": "bytes"}


@pytest.fixture
def log() -> Iterator[EmbeddedLog]:
    with open_log(f"memory://{uuid.uuid4().hex}") as opened:
        opened.create_topic("in", 2)
        opened.create_topic("out", 2)
        for partition in range(2):
            for number in range(RECORDS):
                append(opened, "in", [(str(number), bytes(MEGABYTE), number)], partition)
        yield opened


def peak(log: EmbeddedLog, **config: object) -> tuple[int, int]:
    """The most bytes that were buffered, and the most that waited for a commit."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed(**TEXT)).to("out", Produced(**TEXT))
    app = thread_app(builder.build(), {"max.poll.records": 1, "commit.interval.ms": 3_600_000, **config}, log)
    thread = new_thread(app, log)
    thread.start()
    buffered, pending, quiet = [], [], 0
    while quiet < 3:
        quiet = 0 if thread.step(0) else quiet + 1
        figures = thread.figures()
        buffered.append(figures.buffered_bytes)
        pending.append(figures.pending_bytes)
    thread.close(commit=True)
    assert [len(records_of(log, "out", partition)) for partition in range(2)] == [RECORDS, RECORDS]
    return max(buffered), max(pending)


def test_input_buffer_max_bytes_bounds_what_is_fetched(log: EmbeddedLog) -> None:
    buffered, _ = peak(log, **{"input.buffer.max.bytes": 8 * MEGABYTE})
    assert 8 * MEGABYTE < buffered <= 8 * MEGABYTE + 2 * FETCHED


def test_without_it_all_is_fetched(log: EmbeddedLog) -> None:
    buffered, pending = peak(log)
    assert buffered > 40 * MEGABYTE
    assert 32 * MEGABYTE < pending <= 64 * MEGABYTE + 2 * FETCHED  # much output is committed before its time


LINUX = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="Linux tells what memory is a process's own"
)


def printed(program: str, folder: Path) -> list[int]:
    """The numbers that a program beside this file prints."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, str(here / program), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(here), *sys.path])},
    )
    return list(map(int, done.stdout.split()))


@LINUX
def test_a_worker_gives_back_what_a_restore_has_taken(tmp_path: Path) -> None:
    kept, left = printed("memory_after_restore.py", tmp_path / "replica")
    assert kept > 30 * MEGABYTE  # as long as LMDB's file stays open
    assert left < 10 * MEGABYTE


@LINUX
def test_an_open_task_takes_no_megabytes(tmp_path: Path) -> None:
    (of_each,) = printed("memory_of_tasks.py", tmp_path)
    assert of_each < MEGABYTE


def test_a_task_keeps_nothing_of_the_records_that_it_has_processed(log: EmbeddedLog) -> None:
    builder = StreamsBuilder()
    shorter = builder.stream("in", Consumed(**TEXT)).map_values(lambda value: value[:10])  # decodes them
    shorter.to("out", Produced(**TEXT))
    thread = new_thread(thread_app(builder.build(), {}, log), log)
    thread.start()
    settle(thread)
    gc.collect()
    found = gc.get_objects()
    batches = sum(isinstance(each, pa.RecordBatch) and each.nbytes >= MEGABYTE for each in found)
    values = sum(isinstance(each, list) and any(_is_large(one) for one in each[:2]) for each in found)
    thread.close(commit=True)
    assert (batches, values) == (0, 0)


def _is_large(value: object) -> bool:
    return isinstance(value, bytes) and len(value) >= MEGABYTE
