"""Two workers that share a task, without Spark: what each keeps counts only as long as nobody has overtaken it."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from worker_support import ROWS, append, loaded, prepared, run, two_workers, written

from penstock import Materialized, StreamsBuilder
from penstock.engines.micro_batches.worker import open_tasks


class Seen:
    """Forwards how many records this very instance has seen."""

    def init(self, context: Any) -> None:
        self.context = context
        self.count = 0

    def process(self, record: Any) -> None:
        self.count += 1
        self.context.forward(record.with_value(f"{os.getpid()} {self.count}"))

    def close(self) -> None: ...


def topology() -> Any:
    builder = StreamsBuilder()
    words = builder.stream("words")
    words.group_by_key().count(Materialized("counts")).to_stream().to("counts")
    words.process(Seen).to("seen")
    return builder.build()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[bytes]:
    with prepared(tmp_path, topology(), ["words", "counts", "seen"]) as (data, log):
        append(log, "words", [(f"w{i % 3}", "v") for i in range(10 * ROWS)])
        yield data


@pytest.fixture
def workers() -> Iterator[list[ProcessPoolExecutor]]:
    with two_workers() as made:
        yield made


def final_counts(data: bytes) -> dict[str, int]:
    return {key: int.from_bytes(value, "big") for key, value in written(data, "counts")}


def test_what_was_overtaken_is_made_anew(job: bytes, workers: list[ProcessPoolExecutor]) -> None:
    turns = [0, 0, 1, 0, 1, 1, 1]
    pids = [workers[turn].submit(run, job, batch).result() for batch, turn in enumerate(turns)]
    assert len(set(pids)) == 2
    seen = [tuple(map(int, value.split())) for _, value in written(job, "seen")]
    stays = [0, 1, 0, 0, 0, 1, 2]  # batches before this one that the same worker ran, one after the other
    expected = [(pids[b], stays[b] * ROWS + i) for b in range(len(turns)) for i in range(1, ROWS + 1)]
    assert seen == expected
    assert final_counts(job) == {"w0": 24, "w1": 23, "w2": 23}


def test_a_batch_that_runs_twice_counts_once(job: bytes, workers: list[ProcessPoolExecutor]) -> None:
    """Speculation, or a worker that Spark believed lost."""
    for batch in range(6):
        attempts = [worker.submit(run, job, batch) for worker in workers]
        for attempt in attempts:
            attempt.result()
    assert len(written(job, "seen")) == 60
    assert final_counts(job) == {"w0": 20, "w1": 20, "w2": 20}


def test_replicas_that_are_taken_away(job: bytes) -> None:
    for batch in range(4):
        run(job, batch)
        if batch in (0, 2):
            shutil.rmtree(loaded(job).replica_root)
    assert final_counts(job) == {"w0": 14, "w1": 13, "w2": 13}


def test_a_failed_batch_leaves_nothing_behind(job: bytes) -> None:
    run(job, 0)
    checkpoint = Path(loaded(job).checkpoint) / "state" / "0_0"
    run(job, 1)
    newest = checkpoint / "1.delta"
    newest.write_bytes(b"damaged")
    run(job, 1)  # not committed, so it runs anew, from the state after batch 0
    run(job, 2)
    assert final_counts(job) == {"w0": 10, "w1": 10, "w2": 10}


def test_what_has_not_run_for_long_is_let_go(job: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    run(job, 0)
    looked: list[Any] = []
    done = threading.Event()

    def look(*arguments: Any) -> list[Path]:
        looked.append(arguments)
        done.set()
        return []

    monkeypatch.setattr(open_tasks, "remove_unused", look)
    run(job, 1)
    assert not looked, "ten minutes have not passed"
    application = (loaded(job).checkpoint, "app")
    resting = next(task for key, task in open_tasks._open_tasks.items() if key[0] == application)
    resting._used -= 700
    monkeypatch.setitem(open_tasks._looked, application, time.monotonic() - 700)
    run(job, 2)
    assert resting not in open_tasks._open_tasks.values()
    assert done.wait(120)
    assert looked == [(Path(loaded(job).replica_root), "app", loaded(job).checkpoint, 600.0)]
    assert final_counts(job) == {"w0": 10, "w1": 10, "w2": 10}
