"""Real processes: attempts that race, and kill -9 at the worst moments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.topology.stores import StoreSpec

SPECS = [StoreSpec("s", "key_value", None, None)]

PRELUDE = """
import os, signal, sys
from penstock.state.lmdb_replicas import lmdb_replica
from penstock.state.segments import local_storage
from penstock.state.task_store import StateOwner, StatePlace
from penstock.state.task_store import TaskStore
from penstock.topology.stores import StoreSpec

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

place = StatePlace(sys.argv[1] + "/c", sys.argv[1] + "/r")
store = TaskStore(place, StateOwner("app"), "0_0", [StoreSpec("s", "key_value", None, None)])

def run(batch, value):
    state = store.begin(batch)
    state.map("s").put_many([b"%d" % i for i in range(1000)], [value] * 1000)
    return store.publish(batch, {})
"""


def start(tmp_path, script):
    return subprocess.Popen([sys.executable, "-c", PRELUDE + script, str(tmp_path)], stdout=subprocess.PIPE, text=True)


def contents(tmp_path, batch):
    with TaskStore(StatePlace(str(tmp_path / "c"), tmp_path / "r"), StateOwner("app"), "0_0", SPECS) as store:
        found = list(store.begin(batch).map("s").scan())
        return len(found), {value for _, value in found}, store.find(batch)


@pytest.mark.faults
def test_one_of_two_processes_wins(tmp_path):
    script = """
for batch in range(40):
    segment = run(batch, str(os.getpid()).encode())
    (_, values), = segment.changes("s")
    print(batch, values[0].decode(), os.getpid(), int(segment.published_here))
"""
    attempts = [start(tmp_path, script) for _ in range(2)]
    lines = [line.split() for attempt in attempts for line in attempt.communicate(timeout=300)[0].splitlines()]
    assert [attempt.returncode for attempt in attempts] == [0, 0]
    for batch in range(40):
        mine = [line for line in lines if line[0] == str(batch)]
        winner, other = sorted(mine, key=lambda line: line[3], reverse=True)
        assert (winner[3], other[3]) == ("1", "0")
        assert winner[1] == winner[2] == other[1]
    assert contents(tmp_path, 40)[:2] == (1000, {lines[-1][1].encode()})


@pytest.mark.faults
@pytest.mark.parametrize(
    ("where", "last"),
    [
        ("local_storage._link_new = die", b"one"),  # segment 1 is written, but not in place
        ("local_storage.sync_directory = die", b"two"),  # segment 1 is in place, nobody knows yet
        ("lmdb_replica.LmdbReplica._write_position = die", b"two"),  # its rows are in the replica's open transaction
    ],
)
def test_kill_9_at_a_step(tmp_path, where, last):
    script = f"run(0, b'one'); store.begin(1)\n{where}\nrun(1, b'two'); store.begin(2)\nprint('alive')"
    if "replica" in where:
        script = f"run(0, b'one'); run(1, b'two')\n{where}\nstore.begin(2)\nprint('alive')"
    child = start(tmp_path, script)
    out, _ = child.communicate(timeout=300)
    assert (child.returncode, out) == (-signal.SIGKILL, "")
    count, values, found = contents(tmp_path, 1)
    assert (count, values) == (1000, {b"one"})
    assert (found is not None) == (last == b"two")
    if found is not None:
        assert contents(tmp_path, 2)[:2] == (1000, {b"two"})


@pytest.mark.faults
def test_kill_9_at_any_time(tmp_path):
    done = 0
    for _ in range(3):
        child = start(tmp_path, f"for b in range({done}, 100000): print(b, int(run(b, b'%d' % b).stored), flush=True)")
        assert child.stdout is not None
        seen = [child.stdout.readline() for _ in range(7)]
        os.kill(child.pid, signal.SIGKILL)
        seen += child.stdout.read().splitlines()
        child.stdout.close()
        child.wait()
        whole = [line.split() for line in seen if line.strip()]
        done = int(whole[-1][0]) + 1
        count, values, _ = contents(tmp_path, done)
        assert (count, values) == (1000, {b"%d" % (done - 1)})
