"""Two workers of one group, as processes: one is killed or stopped, the other goes on exactly where it was."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from penstock.connect.worker.group import planned
from penstock.tools.broker.broker_settings import free_port
from test_connect_worker import FILE_SOURCE, ask, settings, until, values


@pytest.fixture
def workers(tmp_path):
    started = []
    for _ in range(2):
        port = free_port()
        given = settings(tmp_path, **{"listeners": f"http://127.0.0.1:{port}", "session.timeout.ms": "6000"})
        file = tmp_path / f"{port}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        command = [sys.executable, "-c", "from penstock.cli.main import main; main()", "connect", "worker", str(file)]
        process = subprocess.Popen(command, cwd=tmp_path)
        started.append(SimpleNamespace(port=port, process=process, url=given["bootstrap.servers"]))
    for each in started:
        until(lambda each=each: is_ready(each))
    yield started
    for each in started:
        each.process.send_signal(signal.SIGCONT)
        each.process.terminate()
    for each in started:
        try:
            each.process.wait(20)
        except subprocess.TimeoutExpired:
            each.process.kill()


def is_ready(worker):
    try:
        return ask(worker, "GET", "/health")[0] == 200
    except OSError:
        return False


def owner(worker):
    status, body = ask(worker, "GET", "/connectors/f/status")
    task = body["tasks"][0] if status == 200 and body["tasks"] else {}
    return task.get("worker_id") if task.get("state") == "RUNNING" else None


def end(worker, ending):
    """Kill a worker; or stop it, but not while it writes: it would keep SQLite's lock, and all others would wait for it."""
    os.kill(worker.process.pid, ending)
    while ending == signal.SIGSTOP and is_locked(worker.url.removeprefix("sqlite:///").partition("?")[0]):
        os.kill(worker.process.pid, signal.SIGCONT)
        time.sleep(0.01)
        os.kill(worker.process.pid, ending)


def is_locked(file):
    try:
        with closing(sqlite3.connect(file, timeout=2)) as database:
            database.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    return False


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSTOP])
def test_the_task_of_a_lost_worker_goes_on_at_another_exactly_once(workers, tmp_path, ending):
    source = tmp_path / "in.txt"
    lines = [f"line {number}" for number in range(3000)]
    source.write_text("".join(f"{line}\n" for line in lines[:2000]))
    config = {"connector.class": FILE_SOURCE, "file": str(source), "topic": "lines", "batch.size": "50"}
    body = {"name": "f", "config": config}
    until(lambda: ask(workers[1], "POST", "/connectors", body)[0] == 201)  # 409 while the group still changes
    until(lambda: values(workers[0].url, "lines"))
    lost = until(lambda: owner(workers[0]))
    gone = next(each for each in workers if lost.endswith(f":{each.port}"))
    stays = next(each for each in workers if each is not gone)
    end(gone, ending)
    until(lambda: owner(stays) not in (None, lost))
    with source.open("a") as out:
        out.write("".join(f"{line}\n" for line in lines[2000:]))
    until(lambda: len(values(stays.url, "lines")) >= len(lines))
    if ending == signal.SIGSTOP:
        os.kill(gone.process.pid, signal.SIGCONT)
        until(lambda: is_ready(gone))
    assert values(stays.url, "lines") == lines


def test_a_plan_moves_no_more_than_it_must():
    work = [("x", number) for number in range(6)]
    first = planned(["a", "b"], work, {})
    assert sorted(first.values()) == ["a"] * 3 + ["b"] * 3
    second = planned(["a", "b", "c"], work, first)
    assert sum(first[each] != second[each] for each in work) == 2
    third = planned(["b", "c"], work, second)
    assert all(third[each] == second[each] for each in work if second[each] != "a")
