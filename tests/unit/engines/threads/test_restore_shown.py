"""A restore of a stream thread as the console shows it, and what threads do that commit nothing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from replica_place import running

from penstock import Serdes
from penstock.base.clock import unix_ms
from penstock.engines.threads.hosting.restore_watch import RestoreWatch, phase_of
from penstock.engines.threads.hosting.thread_state import ThreadState
from penstock.state.restores.restore_progress import Restore
from penstock.topology.stores import StoreSpec

TABLE = StoreSpec("s", "timestamped", Serdes.string(), Serdes.string())


def thread(heard: float = 0.0, **report: Any) -> dict[str, ThreadState]:
    return {"thread-0": ThreadState("host-1", 1, heard, report=report)}


def test_a_lost_replica_is_shown_with_its_figures_until_it_has_caught_up(tmp_path: Path) -> None:
    with running([TABLE], tmp_path) as task:
        for n in range(40):
            task.view().put(f"k{n}", "1", 5)
        task.commit()
        task.progress.clear()
        task.lose()
        reports = list(task.progress)
    watch, shown = RestoreWatch(), list[Restore]()
    for each in reports:
        watch.look(thread(state="restoring", restores=[asdict(each)]))
        shown += watch.under_way()
    assert [(one.stores, one.partition, one.where, one.total) for one in shown[:1]] == [
        (("s",), reports[0].partition, "thread-0", reports[-1].end - reports[0].start)
    ]
    assert shown[0].share == 0.0
    assert all(one.share < 1 for one in shown)
    assert reports[-1].restored == 40
    assert watch.under_way() == []
    assert Restore.of_document(shown[0].document()) == shown[0]


def test_a_silent_thread_is_named_and_one_that_is_in_a_task_for_long() -> None:
    assert phase_of(thread(heard=60.0), 100.0) == "thread-0 on host-1 has not reported for 40 s"
    doing = {"step": "process", "task": "0_3", "seconds": 94.2}
    assert phase_of(thread(heard=99.5, doing=doing), 100.0) == (
        "thread-0 on host-1: task 0_3 is in the step 'process' since 94 s"
    )
    short = {"step": "process", "task": "0_3", "seconds": 0.2}
    assert phase_of(thread(heard=99.5, doing=short), 100.0) == "stream threads wait for the broker"


def test_records_that_are_there_but_not_readable_are_named_with_their_partition() -> None:
    report = {
        "positions": {"orders-3": 12_000, "orders-1": 5},
        "ends": {"orders-3": 12_400, "orders-1": 5},
        "committed_ms": unix_ms() - 94_000,
        "doing": {"step": "poll", "task": "", "seconds": 40.0},
    }
    said = phase_of(thread(heard=99.9, **report), 100.0)
    assert said.startswith("thread-0 on host-1: orders-3 stands at offset 12,000 of 12,400, last commit 94 s ago")
    assert "transaction stays open" in said
