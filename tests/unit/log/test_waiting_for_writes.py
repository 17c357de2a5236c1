"""Waiting for writes to an embedded log, by threads of this process and by others."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from eventually import eventually
from penstock.log.base import TopicPartition
from penstock.log.embedded.database import FileEvents
from penstock.log.embedded.log import EmbeddedLog
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


WRITES = """
import sys
import pyarrow as pa
from penstock.log.open import open_log
records = pa.RecordBatch.from_pydict({"timestamp": [1], "key": [b"k"], "value": [b"v"]})
with open_log(sys.argv[1]) as log:
    for line in sys.stdin:
        log.append("t", 0, records)
"""


@pytest.mark.parametrize("waiting", [1, 3])
def test_no_write_of_another_process_is_missed_after_silences(tmp_path: Path, waiting: int) -> None:
    """Of several threads that wait, the system tells one; the others look for themselves."""
    url = f"sqlite:///{tmp_path}/log.db"
    with open_log(url) as log:
        log.create_topic("t")
        place, seen = TopicPartition("t", 0), []
        with subprocess.Popen([sys.executable, "-c", WRITES, url], stdin=subprocess.PIPE, text=True) as writer:
            assert writer.stdin is not None
            for number, silence_s in enumerate((0.0, 0.3, 0.3, 0.01, 0.6, 0.0)):
                threads = [
                    threading.Thread(target=lambda n=number: seen.append(log.wait_for_data({place: n}, PATIENCE_S)))
                    for _ in range(waiting)
                ]
                for thread in threads:
                    thread.start()
                time.sleep(silence_s)
                writer.stdin.write("\n")
                writer.stdin.flush()
                for thread in threads:
                    thread.join()
            writer.stdin.close()
    assert seen == [{place: number + 1} for number in range(6) for _ in range(waiting)]


def is_told(log: EmbeddedLog) -> None:
    database = log._database
    with database.reading():
        pass  # the file is open
    with database._written:
        assert database._is_told(0.0) is not None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")
def test_the_system_tells_a_child_too_whose_parent_waits(tmp_path: Path) -> None:
    """The thread that is told is in the parent alone."""
    records = pa.RecordBatch.from_pydict({"timestamp": [1], "key": [b"k"], "value": [b"v"]})
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        assert isinstance(log, EmbeddedLog)
        log.create_topic("t")
        waiting = threading.Thread(target=log.wait_for_data, args=({TopicPartition("t", 0): 0}, PATIENCE_S))
        waiting.start()
        eventually(log._database._waits.locked)
        child = multiprocessing.get_context("fork").Process(target=is_told, args=(log,))
        child.start()
        child.join()
        log.append("t", 0, records)
        waiting.join()
        assert child.exitcode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")
def test_the_system_tells_of_the_writes_of_others(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    records = pa.RecordBatch.from_pydict({"timestamp": [1], "key": [b"k"], "value": [b"v"]})
    with open_log(url) as log, open_log(url) as other:
        log.create_topic("t")
        events = FileEvents(f"{tmp_path}/log.db-wal")
        assert not events.wait(0.0)
        for _ in range(3):
            other.append("t", 0, records)
            other.append("t", 0, records)
            assert events.wait(PATIENCE_S)
            assert not events.wait(0.0)


def test_a_wait_ends_without_a_system_that_tells(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="inotify"):
        FileEvents(str(tmp_path / "not-there"))
