"""Ranges that were planned before their records went away: read again after a restart."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from penstock.engines.micro_batches.envelope import Envelope, EnvelopeKind
from penstock.engines.micro_batches.worker.task_attempt import read_planned_range
from penstock.errors import OffsetOutOfRangeError
from penstock.log.open import open_log


@pytest.fixture
def log():
    with open_log("memory://") as opened:
        opened.create_topic("in", 1, {"retention.ms": "-1"})
        for value in range(10):
            opened.append("in", 0, pa.RecordBatch.from_pydict({"value": [str(value).encode()]}))
        yield opened


def planned(start: int, end: int, *, is_gone: bool = False) -> Envelope:
    payload = [start, end, *([True] if is_gone else [])]
    return Envelope(0, 0, EnvelopeKind.RANGE, "0_0_0", "in", 0, "", json.dumps(payload).encode())


def offsets(records) -> list[int]:
    return [offset for batch in records for offset in batch.column("offset").to_pylist()]


def test_all_is_there(log):
    lost: dict[str, int] = {}
    assert offsets(read_planned_range(planned(3, 7), log, lost)) == [3, 4, 5, 6]
    assert offsets(read_planned_range(planned(3, 7), log, None)) == [3, 4, 5, 6]
    assert lost == {}


@pytest.mark.parametrize(("before", "left", "gone"), [(5, [5, 6], 2), (7, [], 4), (9, [], 4)])
def test_retention_has_taken_the_beginning(log, before, left, gone):
    log.delete_records("in", 0, before)
    with pytest.raises(OffsetOutOfRangeError, match=f"retention removed offsets 3 to {before - 1} of in-0"):
        read_planned_range(planned(3, 7), log, None)
    lost: dict[str, int] = {}
    assert offsets(read_planned_range(planned(3, 7), log, lost)) == left
    assert lost == {"in-0": gone}


@pytest.mark.parametrize(("start", "left", "gone"), [(8, [8, 9], 5), (12, [], 3)])
def test_the_log_ends_before_it(log, start, left, gone):
    with pytest.raises(OffsetOutOfRangeError, match="in-0 ends at offset 10, but was read up to 1"):
        read_planned_range(planned(start, 15), log, None)
    lost: dict[str, int] = {}
    assert offsets(read_planned_range(planned(start, 15), log, lost)) == left
    assert lost == {"in-0": gone}


def test_its_topic_was_made_again(log):
    lost: dict[str, int] = {}
    assert read_planned_range(planned(3, 7, is_gone=True), log, lost) == []
    assert lost == {"in-0": 4}
