"""Instances in Python and in Java share the tasks of one application, exactly once, whichever of them come and go."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eventually import eventually
from java_sources import compiler
from penstock.tools.broker.process import Broker

from .java_program import compile_program
from .mixed_group import Feeder, MixedGroup

SCRIPT = Path(__file__).parents[2] / "examples" / "move_from_java" / "move.py"
pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no JDK (javac) to compile the Java program with")


@pytest.fixture
def group(tmp_path: Path, kafka: Broker) -> Iterator[MixedGroup]:
    with ExitStack() as stack:
        class_path = compile_program(tmp_path)
        made = MixedGroup(tmp_path, kafka.settings.bootstrap_servers, f"mixed-{os.getpid()}", class_path)
        stack.callback(made.close)
        yield made


def _until_shared_by(group: MixedGroup, instances: int, *, dead: str = "") -> set[str]:
    """Wait until so many instances share the tasks, and the group knows that one is dead; return their processes."""

    processes: set[str] = set()

    def is_shared() -> bool:
        assert len(group.running()) >= instances, group.story()
        processes.clear()
        processes.update(process for process, tasks in group.sharing().items() if tasks)
        return len(processes) == instances and dead not in processes

    eventually(is_shared, 480.0, facts=group.story)
    return processes


def test_instances_in_python_and_in_java_share_the_tasks_of_one_application(group: MixedGroup) -> None:
    feeder = Feeder(group)
    feeder.start()
    java = group.start("java")
    (process,) = _until_shared_by(group, 1)
    python, more_python = group.start("python"), group.start("python")
    _until_shared_by(group, 3)
    java.kill()
    more_java = group.start("java")
    _until_shared_by(group, 3, dead=process)
    python.kill()
    _until_shared_by(group, 2)
    more_python.end()
    _until_shared_by(group, 1)
    feeder.stop()
    eventually(group.are_all_through, 480.0, facts=group.story)
    more_java.end()
    assert group.problems() == []


@pytest.mark.whole
def test_a_running_word_count_is_moved_from_java_to_python() -> None:
    """The script of docs/how-to/move-from-java.md."""
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith(" words, none lost, none counted twice")
