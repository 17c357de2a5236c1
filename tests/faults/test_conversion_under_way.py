"""A move to continuous mode while a micro-batch is under way: its application was killed in the midst of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fault_app import APPLICATION
from harness import append, outputs, prepare, run, run_here, url
from penstock.log.open import open_log


def per_topic(root: Path) -> dict[str, Counter[Any]]:
    return {topic: sum(parts, Counter()) for topic, parts in outputs(root).items()}


# One task of two has published or written its part of the batch, and the other has not; between the stages, and at the
# end, where only the group's offsets are missing.
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("2:1:0_0", marks=pytest.mark.whole),
        "3:1:1_0",
        pytest.param("5:1:driver", marks=pytest.mark.whole),
    ],
)
def test_the_batch_is_finished_first_and_nothing_is_lost_or_doubled(
    fault: str, done: Any, tmp_path: Path, spark: Any
) -> None:
    prepare(tmp_path)
    assert run(tmp_path, fault) != 0, "the fault was not reached"
    append(tmp_path, 60, 30)  # which no batch has seen
    run_here(tmp_path, spark, **{"processing.mode": "continuous"})
    assert per_topic(tmp_path) == {topic: sum(parts, Counter()) for topic, parts in done[0].items()}
    with open_log(url(tmp_path)) as log:
        committed = log.committed_offsets(APPLICATION)
        assert {place: committed[place] for place in log.end_offsets(["words"])} == log.end_offsets(["words"])
