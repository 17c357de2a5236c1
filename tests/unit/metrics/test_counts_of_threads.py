"""Counts of stream threads, which only grow, and what the driver makes of two of them."""

import json

import numpy as np

from penstock.engines.application_figures import batch_record
from penstock.engines.threads.engine import ProgressCounter
from penstock.engines.threads.hosting.thread_state import ThreadState
from penstock.engines.threads.loop.thread_figures import ThreadCounts
from penstock.metrics.task_counts import OTHER_REASONS, Cause, Example, Spread, TaskCounts
from penstock.runtime.global_stores import GLOBAL_TASK


def run(counts, records, seconds):
    metrics = {"dropped": 1, "records_in": records, "unread": 0}
    counts.sensor.on_batch_end("0_0", seconds, metrics)
    counts.sensor.on_completed("0_0", "sink", np.array([0] * records))
    counts.sensor.on_dropped("0_0", "filter", 1, "late")
    counts.sensor.on_store_calls("0_0", {("store", "get"): [records, 0.5]})


def reported(counts):
    return json.loads(json.dumps(counts.note()))


def thread(counts, records, dropped, tasks=("0_0",), **more):
    task = {"records_in": records, "records_out": 0, "records_read": records, "records_written": 0}
    task |= {"dropped": dropped, "stream_time_ms": 0}
    sizes = {"entries": {"store": 3}, "store_bytes": {"store": 4096}}
    return ThreadState("here", 1, 0.0, report={
        "tasks": [{**task, **sizes, "task": each} for each in tasks], "counts": reported(counts),
        "seconds": {"process": 1.0}, "commits": 1, "positions": {}, "ends": {}, "began_ms": 0, "committed_ms": 0, **more,
    })  # fmt: skip


def test_a_report_that_is_lost_loses_no_count():
    counts, driver = ThreadCounts("DEBUG"), ProgressCounter()
    run(counts, 5, 0.1)
    driver.progress(0, {"t": thread(counts, 5, 1)})
    run(counts, 7, 0.2)
    reported(counts)  # never arrives
    run(counts, 8, 0.3)
    progress = driver.progress(0, {"t": thread(counts, 20, 3)})
    (task,) = progress.tasks
    new = TaskCounts.of_document(task["counts"])
    assert new.processed == 15
    assert new.dropped == 2
    assert new.reasons == {("filter", "late"): 2}
    assert new.stores == {("store", "get"): [15, 1.0]}
    assert new.e2e_latency_ms["sink"].count == 15
    assert task["entries"] == {"store": 3}
    assert task["store_bytes"] == {"store": 4096}
    assert "opened" not in task


def test_extremes_are_those_since_the_last_report_that_was_sent():
    counts = ThreadCounts("INFO")
    run(counts, 1, 9.0)
    assert TaskCounts.of_document(reported(counts)["0_0"]).seconds.high == 9.0
    run(counts, 1, 2.0)
    assert TaskCounts.of_document(reported(counts)["0_0"]).seconds.high == 9.0
    counts.sent()
    run(counts, 1, 3.0)
    assert TaskCounts.of_document(reported(counts)["0_0"]).seconds == Spread(3, 14.0, 3.0, 3.0)


def test_a_task_that_comes_back_to_its_thread_counts_on():
    counts, driver = ThreadCounts("INFO"), ProgressCounter()
    run(counts, 5, 0.1)
    driver.progress(0, {"t": thread(counts, 5, 1)})
    run(counts, 2, 0.1)  # the task was away: its own numbers begin at 0
    progress = driver.progress(0, {"t": thread(counts, 2, 0)})
    assert progress.records_in == 2


def test_a_thread_that_begins_anew_counts_from_nothing():
    """Its process was lost, or its member; the report of the new one has counted less, or already more."""
    for records in (2, 9):
        first, second, driver = ThreadCounts("INFO"), ThreadCounts("INFO"), ProgressCounter()
        fetches = ["consumer", "fetch-ms", "", 7, 9.0, 2.0, 4.0]
        run(first, 5, 0.5)
        driver.progress(0, {"t": thread(first, 5, 1, commits=4, clients=[fetches])})
        run(second, records, 0.25)
        fetches = ["consumer", "fetch-ms", "", 3, 6.0, 2.0, 4.0]
        new = thread(second, records, 1, commits=1, clients=[fetches], seconds={"process": 0.5}, began_ms=7)
        progress = driver.progress(0, {"t": new})
        (task,) = progress.tasks
        counts = TaskCounts.of_document(task["counts"])
        assert (counts.processed, counts.dropped, counts.reasons) == (records, 1, {("filter", "late"): 1})
        assert (progress.records_in, task["busy_s"], task["seconds"]) == (records, 0.25, {"process": 0.5})
        assert task["clients"] == [fetches]
        assert driver.commits == 5
        assert driver.progress(0, {"t": new}) is None


def test_tasks_of_a_thread_report_their_own_time_and_so_the_skew():
    counts, driver = ThreadCounts("INFO"), ProgressCounter()
    for task, seconds in (("0_0", 0.1), ("0_1", 0.1), ("0_2", 0.5)):
        counts.sensor.on_batch_end(task, seconds, {"dropped": 0, "records_in": 1, "unread": 0})
    progress = driver.progress(0, {"t": thread(counts, 1, 0, ("0_0", "0_1", "0_2", "0_3"))})
    assert [task["busy_s"] for task in progress.tasks] == [0.1, 0.1, 0.5, 0]
    assert batch_record(progress, 0, ()).skew == 5
    again = driver.progress(0, {"t": thread(counts, 2, 0, ("0_0", "0_1", "0_2", "0_3"))})
    assert [task["busy_s"] for task in again.tasks] == [0, 0, 0, 0]
    assert batch_record(again, 0, ()).skew == 1


def test_what_has_happened_before_the_first_record_is_reported_with_it():
    counts, driver = ThreadCounts("INFO"), ProgressCounter()
    asked = ["consumer", "fetch-ms", "", 3, 9.0, 2.0, 4.0]
    idle = driver.progress(0, {"t": thread(counts, 0, 0, commits=0, clients=[asked])})
    assert idle is None
    (task,) = driver.progress(0, {"t": thread(counts, 1, 0, commits=0, clients=[asked])}).tasks
    assert task["opened"] == 1
    assert task["clients"] == [asked]
    (later,) = driver.progress(0, {"t": thread(counts, 2, 0, commits=0, clients=[asked])}).tasks
    assert later["clients"] == []


def test_drops_of_global_tables_count_once_also_of_a_thread_without_tasks():
    writer, other, driver = ThreadCounts("INFO"), ThreadCounts("INFO"), ProgressCounter()
    sizes = {"entries": {"rows": 7}, "store_bytes": {}}

    def look(records, dropped):
        writer.sensor.on_batch_end(GLOBAL_TASK, 0.1, {"dropped": dropped, "records_in": dropped, "unread": 0})
        writer.sensor.on_dropped(GLOBAL_TASK, "table", dropped, "null key")
        threads = {"w": thread(writer, 0, 0, (), **{"global": sizes}), "o": thread(other, records, 0)}
        return driver.progress(0, threads)

    first, second = look(1, 3), look(2, 1)
    assert [first.dropped, second.dropped] == [3, 1]
    assert second.tasks[-1]["global"]["entries"] == {"rows": 7}
    assert TaskCounts.of_document(second.tasks[-1]["global"]["counts"]).reasons == {("table", "null key"): 1}
    assert batch_record(first, 0, ()).drops == {("table", "null key"): 3}


def test_a_restore_beside_the_loop_counts_once_its_task_runs():
    counts, driver = ThreadCounts("INFO"), ProgressCounter()

    def look(records, tasks, restored):
        restore = {
            "store": "store",
            "partition": 1,
            "offset": restored,
            "end": 90,
            "restored": restored,
            "seconds": 2.5,
        }
        return driver.progress(0, {"t": thread(counts, records, 0, tasks, restores=[restore])}).tasks[-1]

    assert "restored_rows" not in look(1, ("0_0",), 40)
    assert "restored_rows" not in look(2, ("0_0",), 90)
    runs = look(3, ("0_0", "0_1"), 90)
    assert (runs["restored_rows"], runs["restored_stores"]) == (90, {"store": 2.5})
    later = look(4, ("0_0", "0_1"), 90)
    assert (later["restored_rows"], later.get("restored_stores")) == (0, None)


def test_lateness_is_counted_from_debug_on():
    for level, counted in (("INFO", 0), ("DEBUG", 3)):
        counts = ThreadCounts(level)
        counts.sensor.on_input("0_0", np.array([1, 2, 3]), np.array([3, 3, 3, 3]), 0)
        found = reported(counts).get("0_0", {})
        assert TaskCounts.of_document(found).lateness_ms.count == counted


def test_reasons_that_quote_each_record_are_no_series_for_each():
    counts, driver = ThreadCounts("INFO"), ProgressCounter()
    for number in range(500):
        counts.sensor.on_dropped("0_0", "map", 1, f"ValueError: {number}")
        example = Example("in", 0, number, f"no number: {number}")
        counts.sensor.on_cause("0_0", Cause("map", f"ValueError: {number}"), 1, [example])
        reported(counts)
    counts.sensor.on_dropped("0_0", "filter", 1, "null key")
    (task,) = driver.progress(0, {"t": thread(counts, 1, 500)}).tasks
    new = TaskCounts.of_document(task["counts"])
    assert sum(new.reasons.values()) == 501
    assert len(new.reasons) <= 22
    assert sum(new.causes.values()) == 500
    assert len(new.causes) <= 22
    assert [each.offset for each in new.examples[Cause("map", OTHER_REASONS)]] == [497, 498, 499]
    assert new.reasons["filter", "null key"] == 1
