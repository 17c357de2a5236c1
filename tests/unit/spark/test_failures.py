from __future__ import annotations

import pytest

from penstock.spark import faults
from penstock.spark.failures import is_lost_process


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
