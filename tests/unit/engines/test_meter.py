"""What a running application is said to do."""

from __future__ import annotations

import logging
from typing import Any

from penstock.engines.application_figures import BatchMeter, RunLog
from penstock.engines.spark.progress import BatchProgress, batch_progress


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def _batch(number: int, records: int, **more: Any) -> BatchProgress:
    return BatchProgress(number, records, records // 2, 1, -1, seconds=0.5, **more)


def test_rates_are_of_the_last_ten_seconds_and_sums_of_the_whole_run() -> None:
    clock = Clock()
    meter = BatchMeter("app", clock)
    for number in range(20):
        clock.at += 1
        meter(_batch(number, 100, lag={"t-0": 7, "t-1": 3}, tasks=({"task": f"0_{number % 2}", "entries": {"s": 5}},)))
    figures = meter.figures("RUNNING")
    assert (figures.batches, figures.records_in, figures.records_out, figures.dropped) == (20, 2000, 1000, 20)
    assert (figures.rate, figures.seconds_a_batch, figures.lag, figures.state_rows) == (100.0, 0.5, 10, 10)
    assert figures.line() == (
        "app RUNNING: 100 records/s, lag 10, 0.50 s a batch, state 10 rows; 2,000 in, 1,000 out, 20 dropped, 20 batches"
    )
    meter.has_batches = False  # stream threads, which report once a second
    assert meter.figures("RUNNING").line() == (
        "app RUNNING: 100 records/s, lag 10, state 10 rows; 2,000 in, 1,000 out, 20 dropped"
    )
    assert "batch" not in meter.figures("RUNNING")._repr_html_()
    assert meter.figures("ERROR").summary() == (
        "app ERROR after 20 s: 2,000 records in, 1,000 out, 20 dropped, lag 10, state 10 rows"
    )
    meter.has_batches = True
    clock.at += 60
    meter.behind({"t-0": 0})
    later = meter.figures("NOT_RUNNING")
    assert (later.rate, later.seconds_a_batch, later.lag) == (0.0, 0.5, 0)
    assert later.summary() == (
        "app NOT_RUNNING after 80 s: 2,000 records in, 1,000 out, 20 dropped, 20 batches of 0.50 s, lag 0, state 10 rows"
    )


def test_fields_that_no_value_has_had_are_said_until_they_are_found() -> None:
    meter = BatchMeter("app", Clock())
    meter(_batch(0, 10, never_found=2, tasks=({"task": "0_0", "fields_never_found": 1}, {"task": "0_1"})))
    assert meter.figures("RUNNING").line().endswith("1 dropped, 1 field never found, 1 batch")
    assert meter.figures("NOT_RUNNING").summary().endswith("; 1 field never found")
    meter(_batch(1, 10, tasks=({"task": "0_0", "fields_never_found": 0},)))
    assert "never found" not in meter.figures("RUNNING").line() + meter.figures("NOT_RUNNING").summary()
    assert batch_progress(0, [b'{"task": "0_0", "fields_never_found": 3}']).never_found == 3


def test_nothing_is_known_before_the_first_batch() -> None:
    assert "lag not known" in BatchMeter("app").figures("REBALANCING").line()


def test_the_log_has_a_line_every_ten_seconds_and_a_summary(caplog: Any) -> None:
    clock = Clock()
    meter = BatchMeter("app", clock)
    report = RunLog(lambda: meter.figures("RUNNING"), clock)
    with caplog.at_level(logging.INFO, "penstock"):
        for _ in range(50):
            clock.at += 0.5
            report.tick()
        report.end()
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "app RUNNING",
        "app RUNNING",
        "app RUNNING after 25 s",
    ]


def test_a_step_is_logged_when_it_begins_and_its_progress_every_ten_seconds(caplog: Any) -> None:
    clock = Clock()
    meter = BatchMeter("app", clock)
    report = RunLog(lambda: meter.figures("REBALANCING"), clock)
    with caplog.at_level(logging.INFO, "penstock"):
        meter.doing("starting Spark")
        for share in range(100):
            clock.at += 0.25
            meter.doing(f"restoring {'counts' if share < 50 else 'sums'}, partition {share % 3}: {share}%")
            report.tick()
        meter.doing("")
        meter.doing("")
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        "app: starting Spark",
        "app: restoring counts, partition 0: 0%",
        "app REBALANCING: restoring counts, partition 0: 39%",
        "app: restoring sums, partition 2: 50%",
        "app REBALANCING: restoring sums, partition 1: 79%",
        "app: tasks run, 25.0 s after the start",
    ]
