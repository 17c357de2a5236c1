from __future__ import annotations

import pytest

from penstock.engines.spark import fault_injection as faults
from penstock.engines.spark.failures import is_cancelled, is_lost_process
from penstock.errors import AppFailedError


@pytest.mark.parametrize(
    "text",
    [
        "Task 1 in stage 3.0 failed 4 times, most recent failure: Lost task 1.3 in stage 3.0 (TID 9): ExecutorLostFailure",
        "[STREAM_FAILED] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST",
        "ShuffleMapStage 4 has failed the maximum allowable number of times: 4.",
        "A shuffle map stage with indeterminate output was failed and retried.",
        "[STREAM_FAILED] terminated with exception:  SQLSTATE: XXKST\nCaused by: java.io.EOFException\n\tat a.B.c(B.scala)",
    ],
)
def test_a_lost_process_is_known_by_what_spark_says(text: str) -> None:
    assert is_lost_process(text)


def test_other_errors_of_spark_are_no_lost_process() -> None:
    assert not is_lost_process("AnalysisException: cannot resolve column")


@pytest.mark.parametrize(
    ("text", "was_stopped"),
    [
        ("org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group 1", True),
        ("An error occurred while calling o334.collectToPython.\n: java.lang.InterruptedException\n\tat a.B", True),
        ("org.apache.spark.SparkException: Job 0 cancelled because SparkContext was shut down", True),
        ("java.lang.OutOfMemoryError: Java heap space", False),
        (
            'Job aborted due to stage failure: Traceback:\n  File "/srv/cancelled-orders/app.py", line 7\nOSError: no',
            False,
        ),
        ("Lost task 1.3 in stage 3.0 (TID 9): ExecutorLostFailure\nCaused by: java.lang.InterruptedException", False),
    ],
)
def test_a_query_that_somebody_stops_is_no_failure(text: str, was_stopped: bool) -> None:
    assert is_cancelled(AppFailedError("the Spark job failed", details=text)) is was_stopped


def test_a_fault_may_come_while_the_application_runs(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    killed: list[int] = []
    monkeypatch.setattr(faults, "FAULT", f"@{tmp_path / 'fault'}")
    monkeypatch.setattr(faults.os, "kill", lambda pid, _: killed.append(pid))
    faults.reach(3, 7, "0_1", 1)
    assert not killed
    (tmp_path / "fault").write_text("3:*:*")
    faults.reach(2, 7, "0_1", 1)
    assert not killed
    faults.reach(3, 7, "0_1", 1)
    assert killed
