"""What needs no broker: the guard that ends one whose starter has gone, and ports that nobody else is given."""

from __future__ import annotations

import subprocess
import sys

from penstock.tools.broker.broker_settings import free_port

STARTER = """
import os, sys
from penstock.tools.broker.process import guard
kept = guard(int(sys.argv[1]))
print("guarded", flush=True)
sys.stdin.read()
os.kill(os.getpid(), 9)
"""


def test_it_ends_with_its_starter() -> None:
    with subprocess.Popen(["sleep", "60"]) as broker:
        command = [sys.executable, "-c", STARTER, str(broker.pid)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
            assert starter.stdout.readline() == b"guarded\n"
            assert broker.poll() is None
            starter.stdin.close()
            assert starter.wait(20) == -9
        assert broker.wait(20) == -9


def test_ports_are_not_those_of_outgoing_connections() -> None:
    assert all(20_000 <= free_port() < 32_000 for _ in range(20))
