"""Waiting for writes to an embedded log, by threads of this process and by others."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.log.base import TopicPartition
from penstock.log.open import open_log

PATIENCE_S = 60.0


@pytest.mark.parametrize("silence_s", [0.0, 1.1])
def test_no_write_of_another_thread_is_missed(tmp_path: Path, silence_s: float) -> None:
    """Also not one that comes just as the waiting thread looks for those of other processes."""
    records = pa.RecordBatch.from_pydict({"timestamp": [1], "key": [b"k"], "value": [b"v"]})
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        log.create_topic("t")
        time.sleep(silence_s)
        place = TopicPartition("t", 0)
        for number in range(40):
            writer = threading.Timer(0.0005 * number, log.append, ("t", 0, records))
            writer.start()
            began = time.monotonic()
            assert log.wait_for_data({place: number}, PATIENCE_S) == {place: number + 1}
            assert time.monotonic() - began < PATIENCE_S
            writer.join()
