"""What consoles show of several instances that share one folder: the documents of one of them, and all stop together."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.base.clock import unix_ms
from penstock.console.actions import ask_to_stop, stop_asked
from penstock.console.applications import Application
from penstock.console.recorder import HISTORY, NOW, Recorder, Watched, read_facts, write_facts
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.log.processes import process_start
from penstock.log.streams_groups.description import GroupSubtopology, GroupTopology
from penstock.log.streams_groups.member import MemberFacts, StreamsMember

MINUTE = 60_000
TOPOLOGY = GroupTopology((GroupSubtopology("0", ("in",)),))


def facts_of(pid: int) -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": pid, "process_start": process_start(pid)}


def shown(checkpoint: Path) -> int:
    """The process whose figures consoles show."""
    return int((read_facts(str(checkpoint), NOW) or {})["facts"]["pid"])


def recorder(checkpoint: Path) -> Recorder:
    """A recorder of this process, which has others beside it."""
    made = Recorder("shop", lambda: "RUNNING")
    made.begin(Watched(str(checkpoint), tuple, dict, facts_of(os.getpid()), dict, has_others=True))
    return made


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process


def write_other(checkpoint: Path, other: subprocess.Popen[bytes], *, age_ms: int = 0, state: str = "RUNNING") -> None:
    written = {"state": state, "facts": facts_of(other.pid), "written_ms": unix_ms() - age_ms, "started_ms": 1}
    write_facts(str(checkpoint), NOW, written)
    write_facts(str(checkpoint), HISTORY, {"past": {}, "minutes": [[MINUTE, 3]]})


def test_figures_of_an_instance_that_runs_are_not_overwritten(tmp_path: Path, other: Any) -> None:
    write_other(tmp_path, other)
    recorder(tmp_path).close()
    assert shown(tmp_path) == other.pid
    assert (read_facts(str(tmp_path), HISTORY) or {})["minutes"] == [[MINUTE, 3]]


def test_another_instance_is_shown_once_the_first_has_ended_and_goes_on_with_its_history(
    tmp_path: Path, other: Any
) -> None:
    write_facts(str(tmp_path), NOW, {"state": "RUNNING", "facts": facts_of(other.pid), "written_ms": unix_ms()})
    second = recorder(tmp_path)
    write_other(tmp_path, other)
    other.communicate(b"\n")
    second.close()
    assert shown(tmp_path) == os.getpid()
    assert [row[:2] for row in (read_facts(str(tmp_path), HISTORY) or {})["minutes"]] == [[MINUTE, 3]]


@pytest.mark.parametrize(("age_ms", "state"), [(10 * MINUTE, "RUNNING"), (0, "NOT_RUNNING")])
def test_an_instance_that_is_silent_or_has_ended_in_order_is_replaced(
    age_ms: int, state: str, tmp_path: Path, other: Any
) -> None:
    write_other(tmp_path, other, age_ms=age_ms, state=state)
    recorder(tmp_path).close()
    assert shown(tmp_path) == os.getpid()


def test_a_stop_is_for_all_instances_that_have_begun(tmp_path: Path) -> None:
    checkpoint, now_ms = str(tmp_path), unix_ms()
    write_facts(checkpoint, NOW, {"state": "RUNNING", "started_ms": now_ms - 5})
    ask_to_stop(checkpoint, "shop")
    assert stop_asked(checkpoint, now_ms - 5)
    assert not stop_asked(checkpoint, now_ms - 9)
    assert stop_asked(checkpoint, now_ms - 9, of_all=True)
    assert not stop_asked(checkpoint, unix_ms() + MINUTE, of_all=True)


def test_an_application_runs_as_long_as_one_of_its_instances_does(tmp_path: Path) -> None:
    write_facts(str(tmp_path), NOW, {"state": "NOT_RUNNING", "application": "shop"})
    with open_log(f"memory://{uuid.uuid4().hex}") as log:
        assert isinstance(log, EmbeddedLog)
        log.create_topic("in", 1)
        assert Application("shop", str(tmp_path), log).picture().state == "NOT_RUNNING"
        with closing(log.streams_coordinator()) as coordinator:
            coordinator.set_group_settings("shop", {"streams.initial.rebalance.delay.ms": "0"})
            member = StreamsMember(MemberFacts("shop", "m", "p", TOPOLOGY), 0)
            now_ms = 0
            while not member.owned.active:
                now_ms += 10_000
                sent = member.next_heartbeat(now_ms)
                assert sent is not None
                member.answered(coordinator.heartbeat(sent), now_ms)
                member.acquired(member.work(), now_ms)
            sent = member.next_heartbeat(now_ms + 10_000)
            assert sent is not None
            coordinator.heartbeat(sent)
            assert Application("shop", str(tmp_path), log).picture().state == "RUNNING"
