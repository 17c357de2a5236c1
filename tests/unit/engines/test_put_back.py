"""Stores that were taken out on purpose and are put back after their segments were lost; without Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from upgrade_support import commit, lose_segments, stop
from worker_support import ROWS, append, loaded, prepared, run, written

from penstock import Materialized, Processor, Stores, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.micro_batches.recovery.lost_checkpoint import lost_checkpoint_of
from penstock.engines.micro_batches.recovery.rebuild import TaskReport, rebuilder_for
from penstock.engines.micro_batches.worker import open_tasks
from penstock.errors import CheckpointMismatchError, MissingSegmentError
from penstock.log.open import open_log

TOPICS = ["words", "counts", "more"]
HEADED = "headed"
DROP = {"penstock.state.drop": "more"}


class Counts(Processor):
    """Counts in a store that keeps headers."""

    def process(self, record: Any) -> None:
        store = self.context.get_state_store(HEADED)
        before = store.get(record.key)
        assert before is None or before.headers == (("h", b"1"),)
        count = 1 if before is None else int(before.value) + 1
        store.put(record.key, str(count), record.timestamp, (("h", b"1"),))
        self.context.forward(record.with_value(str(count)))


def topology(*stores: str) -> Any:
    """Counts of the same words, a store each; always the same nodes without state in front."""
    builder = StreamsBuilder()
    words = builder.stream("words")
    words.to("copies")
    for store in stores:
        if store == HEADED:
            builder.add_state_store(Stores.timestamped_with_headers(HEADED, key_serde="string", value_serde="string"))
            words.process(Counts, [HEADED]).to("more")
            continue
        words.group_by_key().count(Materialized(store)).to_stream().to(store)
    return builder.build()


@pytest.fixture(autouse=True)
def _no_open_tasks() -> Iterator[None]:
    yield
    open_tasks.close_open_tasks()


def start(root: Path, batches: range, *stores: str, **settings: Any) -> tuple[bytes, StreamsConfig]:
    """A start of the application that runs these batches."""
    with prepared(root, topology(*stores), [*TOPICS, "copies"], **settings) as (data, log):
        if not log.end_offset("words", 0):
            append(log, "words", [("k", "v") for _ in range(10 * ROWS)])
        job = loaded(data)
        for batch in batches:
            run(data, batch)
            commit(job, log, batch)
    open_tasks.close_open_tasks()
    return data, job.config


def rebuild(config: StreamsConfig, *stores: str) -> list[TaskReport]:
    stop(config)
    with rebuilder_for(topology(*stores), config) as rebuilder:
        return [rebuilder.rebuild(sub, partition) for sub, partition in rebuilder.tasks()]


def last(data: bytes, store: str) -> int:
    return int.from_bytes(written(data, store)[-1][1], "big")


def test_it_is_restored_with_the_stores_beside_it(tmp_path: Path) -> None:
    start(tmp_path, range(2), "counts", "more")
    data, config = start(tmp_path, range(2, 3), "counts", **DROP)
    lose_segments(data, tmp_path)
    (report,) = rebuild(config, "counts")
    assert (report.outcome, report.rows, report.without_changelog) == ("rebuilt", {"counts": 1, "more": 1}, ())
    data, _ = start(tmp_path, range(3, 4), "counts", "more")
    assert (last(data, "counts"), last(data, "more")) == (4 * ROWS, 3 * ROWS)


def test_without_its_changelog_it_is_named_as_lost_and_not_put_back(tmp_path: Path) -> None:
    start(tmp_path, range(2), "counts", "more")
    data, config = start(tmp_path, range(2, 3), "counts", **DROP)
    lose_segments(data, tmp_path)
    with open_log(config["bootstrap.servers"]) as log:
        log.delete_topic("app-more-changelog")
    (report,) = rebuild(config, "counts")
    assert (report.outcome, report.rows, report.without_changelog) == ("rebuilt", {"counts": 1}, ("more",))
    with pytest.raises(CheckpointMismatchError, match=r"'more' cannot be put back: .* segments of task 0_0 were lost"):
        start(tmp_path, range(0), "counts", "more")
    data, _ = start(tmp_path, range(3, 4), "counts")
    assert last(data, "counts") == 4 * ROWS


def test_a_start_that_puts_it_back_misses_segments_that_nobody_read_since(tmp_path: Path) -> None:
    start(tmp_path, range(2), "more")
    data, config = start(tmp_path, range(2, 3), **DROP)  # it keeps no state, and so writes no segments
    lose_segments(data, tmp_path)
    with pytest.raises(MissingSegmentError, match="more cannot be put back with the contents"):
        start(tmp_path, range(0), "more")
    (report,) = rebuild(config, "more")
    assert (report.outcome, report.rows) == ("rebuilt", {"more": 1})
    data, _ = start(tmp_path, range(3, 4), "more")
    assert last(data, "more") == 3 * ROWS


def test_it_is_restored_when_the_checkpoint_is_lost_as_a_whole(tmp_path: Path) -> None:
    start(tmp_path, range(2), "counts", "more")
    _, config = start(tmp_path, range(2, 3), "counts", **DROP)
    shutil.rmtree(tmp_path / "state")
    stop(config)
    with lost_checkpoint_of(topology("counts"), config) as found:
        (report,) = found.make()
    assert report.rows == {"counts": 1, "more": 1}
    data, _ = start(tmp_path, range(3, 4), "counts", "more")
    assert (last(data, "counts"), last(data, "more")) == (4 * ROWS, 3 * ROWS)


def test_a_store_that_keeps_headers_is_restored_with_them(tmp_path: Path) -> None:
    start(tmp_path, range(2), "counts", HEADED)
    data, config = start(tmp_path, range(2, 3), "counts", **{"penstock.state.drop": HEADED})
    lose_segments(data, tmp_path)
    (report,) = rebuild(config, "counts")
    assert report.rows == {"counts": 1, HEADED: 1}
    data, _ = start(tmp_path, range(3, 4), "counts", HEADED)
    assert written(data, "more")[-1] == ("k", str(3 * ROWS).encode())
