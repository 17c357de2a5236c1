"""Global stores of stream threads: one copy a machine, written by one thread and read by all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import pyarrow as pa
import pytest
from global_table import globals_app

from eventually import eventually
from penstock.base.clock import unix_ms
from penstock.engines import global_store_copy as global_copy
from penstock.engines.threads.loop import global_state
from penstock.engines.threads.loop.global_state import MemoryGlobals
from penstock.engines.threads.loop.stream_thread import StreamThread, ThreadHooks
from penstock.engines.threads.replicas.replica_folders import continuous_replicas
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.runtime.global_stores import GLOBAL_TASK
from penstock.runtime.sensor import Sensor
from penstock.state.restores.restore_progress import RestoreProgress
from penstock.topology.plan.plan import TaskId
from threads import append, new_thread, records_of, settle

HERE = Path(__file__).parent
PATIENCE_S = 60


class _Globals(Sensor):
    """Counts the records of global topics that are processed."""

    def __init__(self) -> None:
        self.records = 0

    def on_batch_start(self, task_id: str, records: int) -> None:
        if task_id == GLOBAL_TASK:
            self.records += records


class _Process:
    """A process of global_reader.py, and the lines that it prints."""

    def __init__(self, url: str, root: Path) -> None:
        path = os.pathsep.join([str(HERE), str(HERE.parents[2])])
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "global_reader.py"), url, str(root)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._lines: Queue[str] = Queue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def kill(self) -> None:
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self._reading.join()
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.strip())

    def line(self) -> str:
        return self._lines.get(timeout=PATIENCE_S)


@contextmanager
def other_process(url: str, root: Path) -> Iterator[_Process]:
    other = _Process(url, root)
    try:
        yield other
    finally:
        other.kill()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/log.db"


@pytest.fixture
def log(url: str) -> Iterator[EmbeddedLog]:
    with open_log(url) as opened:
        yield opened


def started(log: EmbeddedLog, root: Path, sensor: Sensor | None = None) -> StreamThread:
    thread = new_thread(globals_app(log, str(root)), log, hooks=ThreadHooks(sensor=sensor or Sensor()))
    thread.start()
    return thread


def joined(log: EmbeddedLog) -> list[bytes | None]:
    return [value for _, value, _ in records_of(log, "out")]


def test_a_restart_reads_what_is_new(log: EmbeddedLog, tmp_path: Path) -> None:
    globals_app(log, None)
    append(log, "names", [(f"k{each}", "v", each) for each in range(1_000)])
    append(log, "names", [("other", "x", 1)], partition=1)
    first, second = _Globals(), _Globals()
    started(log, tmp_path / "replicas", first).close(commit=True)
    append(log, "names", [("k1", "changed", 2_000), ("k2", None, 2_001)])
    append(log, "orders", [("o", key, 3_000) for key in ("k0", "k1", "k2", "other")])
    thread = started(log, tmp_path / "replicas", second)
    settle(thread)
    thread.close(commit=True)
    assert (first.records, second.records) == (1_001, 2)
    assert joined(log) == [b"k0@v", b"k1@changed", b"other@x"]


def test_a_running_thread_follows_the_topic(log: EmbeddedLog, tmp_path: Path) -> None:
    thread = started(log, tmp_path / "replicas")
    append(log, "names", [("a", "1", 1)])
    settle(thread)
    append(log, "orders", [("o", "a", 2)])
    settle(thread)
    append(log, "names", [("a", "2", 3)])
    settle(thread)
    append(log, "orders", [("o", "a", 4)])
    settle(thread)
    thread.close(commit=True)
    assert joined(log) == [b"a@1", b"a@2"]


def test_threads_of_two_processes_share_a_copy(log: EmbeddedLog, url: str, tmp_path: Path) -> None:
    globals_app(log, None)
    append(log, "names", [("k", "first", 1), ("a", "1", 1)])
    with other_process(url, tmp_path / "replicas") as other:
        assert (other.line(), other.line()) == ("writer", "first")
        sensor = _Globals()
        thread = started(log, tmp_path / "replicas", sensor)
        append(log, "names", [("k", "second", 2), ("a", "2", 2)])
        assert other.line() == "second"
        append(log, "orders", [("o", "a", 3)])
        settle(thread)
        thread.close(commit=True)
        assert joined(log) == [b"a@2"]
        assert sensor.records == 0
    folders = list(continuous_replicas(tmp_path / "replicas", "app", log.identity()))
    assert [len(list(each.glob("slot-*"))) for each in folders if each.name.startswith("global-")] == [1]


def test_another_thread_goes_on_when_the_writer_is_killed(log: EmbeddedLog, url: str, tmp_path: Path) -> None:
    globals_app(log, None)
    append(log, "names", [("k", "first", 1)])
    with other_process(url, tmp_path / "replicas") as other:
        assert (other.line(), other.line()) == ("writer", "first")
        thread = started(log, tmp_path / "replicas")
        other.process.send_signal(signal.SIGKILL)
        other.process.wait()
        append(log, "names", [("k", "second", 2)])

        def sees_it() -> bool:
            append(log, "orders", [("o", "k", 3)])
            settle(thread)
            return joined(log)[-1] == b"k@second"

        eventually(sees_it)
        thread.close(commit=True)


def test_a_writer_that_was_paused_holds_up_nobody(
    log: EmbeddedLog, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(global_state, "_STALLED_S", 0.5)
    globals_app(log, None)
    append(log, "names", [("k", "first", 1)])
    with other_process(url, tmp_path / "replicas") as other:
        assert (other.line(), other.line()) == ("writer", "first")
        other.process.send_signal(signal.SIGSTOP)
        append(log, "names", [("k", "second", 2)])
        append(log, "orders", [("o", "k", 3)])
        thread = started(log, tmp_path / "replicas")
        settle(thread)
        thread.close(commit=True)
        assert joined(log) == [b"k@second"]
        assert "stands still" in caplog.text
        other.process.send_signal(signal.SIGCONT)
        assert other.line() == "second"


def test_a_topic_that_was_made_again_empties_the_copy(log: EmbeddedLog, tmp_path: Path) -> None:
    globals_app(log, None)
    append(log, "names", [("a", "old", 1), ("b", "old", 2)])
    started(log, tmp_path / "replicas").close(commit=True)
    log.delete_topic("names")
    log.create_topic("names", 2)
    append(log, "names", [("b", "new", 3), ("c", "new", 4), ("d", "new", 5)])
    append(log, "orders", [("o", key, 6) for key in "abc"])
    thread = started(log, tmp_path / "replicas")
    settle(thread)
    thread.close(commit=True)
    assert joined(log) == [b"b@new", b"c@new"]


def test_a_copy_that_has_missed_deletions_is_filled_anew(log: EmbeddedLog, tmp_path: Path) -> None:
    globals_app(log, None)
    compacted = {"cleanup.policy": "compact", "delete.retention.ms": "0", "min.cleanable.dirty.ratio": "0"}
    log.alter_config("names", compacted)
    append(log, "names", [("a", "1", 1), ("b", "2", 2), ("c", "3", 3)])
    started(log, tmp_path / "replicas").close(commit=True)
    append(log, "names", [("a", None, 4), ("b", None, 5), ("c", "4", 6)])
    log.compact("names", 0, unix_ms() + 1_000)
    append(log, "orders", [("o", key, 7) for key in "abc"])
    thread = started(log, tmp_path / "replicas")
    settle(thread)
    thread.close(commit=True)
    assert joined(log) == [b"c@4"]


def test_another_layout_of_the_table_empties_the_copy(log: EmbeddedLog, tmp_path: Path) -> None:
    globals_app(log, None)
    append(log, "names", [("a", "x", 1)])
    sensor = _Globals()
    started(log, tmp_path / "replicas").close(commit=True)
    app = globals_app(log, str(tmp_path / "replicas"), "in_memory")
    thread = new_thread(app, log, hooks=ThreadHooks(sensor=sensor))
    thread.start()
    thread.close(commit=True)
    assert sensor.records == 1


def test_another_format_of_the_table_empties_the_copy(log: EmbeddedLog, tmp_path: Path) -> None:
    globals_app(log, None)
    append(log, "names", [("a", "x", 1), ("b", "y", 2), ("c", "z", 3)])
    append(log, "orders", [("o", "a", 4)])
    for format_ in ("DEFAULT", "HEADERS", "DEFAULT"):
        thread = new_thread(globals_app(log, str(tmp_path / "replicas"), **{"dsl.store.format": format_}), log)
        thread.start()
        append(log, "orders", [("o", key, 5) for key in "bc"])
        settle(thread)
        thread.close(commit=True)
    assert joined(log) == [b"a@x", *[b"b@y", b"c@z"] * 3]


def test_a_second_thread_of_a_process_keeps_its_own(log: EmbeddedLog, tmp_path: Path) -> None:
    globals_app(log, None)
    append(log, "names", [("a", "1", 1)])
    one, two = started(log, tmp_path / "replicas"), started(log, tmp_path / "replicas")
    assert isinstance(two._globals, MemoryGlobals)
    assert not isinstance(one._globals, MemoryGlobals)
    one.close(commit=False)
    two.close(commit=False)


def test_a_restore_tells_its_progress_and_can_be_ended(log: EmbeddedLog, tmp_path: Path) -> None:
    app = globals_app(log, str(tmp_path / "replicas"))
    for start in range(0, 150_000, 50_000):
        append(log, "names", [(f"k{each}", "v", 1) for each in range(start, start + 50_000)])
    seen: list[RestoreProgress] = []

    def interrupt(progress: RestoreProgress) -> None:
        seen.append(progress)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        new_thread(app, log, hooks=ThreadHooks(on_restore=interrupt)).start()
    assert [each.offset for each in seen] == [50_000, 100_000]
    sensor = _Globals()
    thread = started(log, tmp_path / "replicas", sensor)
    assert sensor.records == 50_000  # what was committed before is not read again
    thread.close(commit=False)


class _EndsAfter(Sensor):
    """Ends the thread when so many pieces are in the copy."""

    def __init__(self, pieces: int) -> None:
        self.left = pieces

    def on_flushed(self, task_id: str, changes: Mapping[str, pa.RecordBatch], seconds: float) -> None:
        if task_id == GLOBAL_TASK:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt


def keys_in(thread: StreamThread) -> list[str]:
    return [key for key, _ in thread.store(TaskId(0, 0), "names").all()]


@pytest.mark.parametrize("pieces", [1, 2, 3, 4])
def test_a_fetch_that_ends_in_any_of_its_pieces_loses_nothing(
    log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    monkeypatch.setattr(global_copy, "_PIECE_RECORDS", 3)
    keys = [f"k{each}" for each in range(10)]
    sensor = _EndsAfter(1 + pieces)  # the first is that of the start
    thread = started(log, tmp_path / "replicas", sensor)
    append(log, "names", [(key, "v", 1) for key in keys])
    with pytest.raises(KeyboardInterrupt):
        settle(thread)
    thread.close(commit=False)
    read = _Globals()
    again = started(log, tmp_path / "replicas", read)
    assert keys_in(again) == keys
    assert read.records == max(0, 10 - 3 * pieces)  # what is in the copy is not read again
    again.close(commit=False)


@pytest.mark.parametrize("pieces", [1, 2, 3, 4])
def test_a_restore_that_ends_in_any_of_its_pieces_loses_nothing(
    log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    monkeypatch.setattr(global_copy, "_PIECE_RECORDS", 3)
    globals_app(log, None)
    append(log, "names", [(f"k{each}", "v", 1) for each in range(5)])
    append(log, "names", [(f"l{each}", "v", 1) for each in range(5)], partition=1)
    with pytest.raises(KeyboardInterrupt):
        started(log, tmp_path / "replicas", _EndsAfter(pieces))
    again = started(log, tmp_path / "replicas")
    assert keys_in(again) == [f"{name}{each}" for name in "kl" for each in range(5)]
    again.close(commit=False)
