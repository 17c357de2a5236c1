"""Lines of an application on a terminal, seen through a real one."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

PROGRAM = """
import logging, sys
from penstock.base.log_lines import lines_on_terminal
if "set-up" in sys.argv:
    logging.basicConfig(format="own %(message)s", level="ERROR")
log = logging.getLogger("penstock.app")
with lines_on_terminal(log):
    log.info("RUNNING")
log.info("afterwards")
print(log.level, log.handlers)
"""


def on_a_terminal(*arguments: str) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], stdin=theirs, stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the end of a terminal, on Linux
                part = b""
            if not part:
                break
            shown += part
        assert child.wait(30) == 0, shown
    os.close(ours)
    return shown.decode()


def test_lines_are_shown_while_nothing_else_is_set_up():
    shown = on_a_terminal()
    assert "RUNNING" in shown
    assert "afterwards" not in shown
    assert "0 []" in shown


@pytest.mark.parametrize("how", ["set up by the program", "not a terminal"])
def test_nothing_is_added(how):
    if how == "not a terminal":
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=300)
        shown = done.stdout + done.stderr
    else:
        shown = on_a_terminal("set-up")
    assert "RUNNING" not in shown
    assert "0 []" in shown


def test_a_program_of_spark_submit_shows_its_lines():
    environment = {**os.environ, "PYSPARK_GATEWAY_PORT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=300, env=environment
    )
    assert "RUNNING" in done.stderr
    assert "afterwards" not in done.stderr


BRIEF = """
import sys
from penstock.errors import ConfigError, FencedError
from penstock.base.log_lines import ended_without_trace
if "own hook" in sys.argv:
    sys.excepthook = lambda kind, error, trace: print("my own", kind.__name__)
with ended_without_trace((FencedError,)):
    if "caught" in sys.argv:
        try:
            with ended_without_trace((FencedError,)):
                raise FencedError("another instance runs", hint="Stop it.")
        except FencedError:
            pass
        raise ConfigError("something else")
    raise FencedError("another instance runs", hint="Stop it.")
"""


@pytest.mark.parametrize(
    ("how", "wanted", "has_trace"),
    [
        ("", "FencedError: another instance runs\nHint: Stop it.\n", False),
        ("own hook", "my own FencedError\n", False),
        ("caught", "ConfigError: something else", True),
    ],
)
def test_a_program_that_is_fenced_ends_with_a_sentence(how, wanted, has_trace):
    done = subprocess.run([sys.executable, "-c", BRIEF, how], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert wanted in done.stdout + done.stderr
    assert ("Traceback" in done.stderr) is has_trace
