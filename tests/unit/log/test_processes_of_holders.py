"""Processes are known by machine and container, not by a host name and a number that others may have too."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.base import clock
from penstock.errors import FencedError
from penstock.log import processes
from penstock.log.fenced_record import RecordName
from penstock.log.leases import holder_runs
from penstock.log.open import open_log
from penstock.log.processes import has_ended, may_run, process_start

HOST = socket.gethostname()


def gone() -> tuple[int, str]:
    """The number and start of a process that has ended."""
    code = "import os; from penstock.log.processes import process_start; print(process_start(os.getpid()))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        start = process.communicate()[0].strip()
    return process.pid, start


def test_a_process_of_this_machine_that_has_ended_is_gone() -> None:
    me = os.getpid(), process_start(os.getpid())
    assert may_run(HOST, *me)
    pid, start = gone()
    assert not may_run(HOST, pid, start)
    assert not may_run("a name of before", pid, start)  # the machine is the same
    place, _, ticks = me[1].rpartition("/")
    assert not may_run(HOST, me[0], f"{place}/{int(ticks or 0) + 1}")  # another process has its number


def test_a_machine_that_could_not_be_read_for_a_moment_is_known_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = process_start(os.getpid())
    processes._own_place.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(clock, "_BOOT_ID", tmp_path / "not to be read")
        assert process_start(os.getpid()) != start
    assert process_start(os.getpid()) == start
    assert may_run(HOST, os.getpid(), start)


def test_a_process_that_has_ended_and_whose_parent_has_not_looked_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        start = process_start(process.pid)
        assert may_run(HOST, process.pid, start)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays as it is
        assert not may_run(HOST, process.pid, start)


def test_a_process_whose_connections_have_ended_is_waited_for() -> None:
    assert has_ended(gone()[0])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert not has_ended(process.pid, 0.01)
        process.kill()
        assert has_ended(process.pid, 60.0)  # nobody has looked yet
        assert process.returncode is None


def test_a_process_of_another_container_of_the_same_name_may_run() -> None:
    pid, start = gone()
    place, _, ticks = start.rpartition("/")
    assert may_run(HOST, pid, f"{place[:-2]}9]/{ticks}")  # another namespace of processes
    assert may_run(HOST, pid, f"another-boot/{ticks}")


def test_a_moment_without_free_files_does_not_stay_in_what_a_process_says_of_itself() -> None:
    """Others would take it for gone, and its replicas for those of another start of the machine."""
    program = """
import os
import resource
from penstock.base.clock import boot_id
from penstock.log.processes import process_start
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
during = boot_id(), process_start(os.getpid()).rpartition("/")[2]
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
print(during == ("", ""), bool(boot_id()), bool(process_start(os.getpid()).rpartition("/")[2]))
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["True", "True", "True"]


def test_entries_of_earlier_versions_go_by_the_name_of_the_host() -> None:
    pid, start = gone()
    ticks = start.rpartition("/")[2]
    assert not may_run(HOST, pid, ticks)
    assert may_run("another", pid, ticks)


def test_a_live_holder_in_another_container_keeps_its_lease(tmp_path: Path) -> None:
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        lease = log.acquire_lease("app", "there")
        record = log.fenced_record(RecordName("app", "driver", "app-penstock-ledger", b"lease", is_in_topic=False))
        stored = record.read()
        assert stored.value is not None
        own = process_start(os.getpid())
        pid = gone()[0]
        there = stored.value.replace(own.encode(), b"boot:pid:[9]/77").replace(
            f'"pid": {os.getpid()}'.encode(), f'"pid": {pid}'.encode()
        )
        record.replace(there, stored.version)
        with pytest.raises(FencedError, match="runs already"):
            log.acquire_lease("app", "here")
        late = replace(lease, heartbeat_ms=lease.heartbeat_ms - 31_000)
        assert not holder_runs(replace(late, process_start="boot:pid:[9]/77"))  # its heartbeats alone decide
