"""Workers and tasks that are killed or stopped: sources lose and double nothing, sinks lose nothing."""

import gzip
import os
import random
import shutil
import signal

import pytest

from brokers import running_broker
from connect_group import GroupWorker, committed_values, eventually, with_suppressed
from connect_soak import FAULTS, Soak

FILE = "org.apache.kafka.connect.file.FileStreamSource"


def test_a_killed_task_loses_and_doubles_nothing_over_an_embedded_log(tmp_path):
    with Soak(tmp_path, f"sqlite:///{tmp_path}/log.db", random.Random(3), step=30, workers=1) as soak:
        soak.round("kill-task")


@pytest.mark.whole
@pytest.mark.parametrize("log", ["kafka", "embedded"])
def test_faults_of_three_workers_lose_and_double_nothing(tmp_path, log):
    if log == "embedded":
        go_through_all(tmp_path, f"sqlite:///{tmp_path}/log.db")
        return
    with running_broker(tmp_path / "kafka") as broker:
        go_through_all(tmp_path, broker.settings.bootstrap_servers)


def go_through_all(folder, url):
    with Soak(folder, url, random.Random(5)) as soak:
        for fault in FAULTS:
            soak.round(fault)


@pytest.mark.whole
def test_lines_of_rotated_files_come_once_though_the_worker_is_killed(tmp_path):
    url, path, lines = f"sqlite:///{tmp_path}/log.db", tmp_path / "app.log", []

    def write(count):
        new = [f"line {number}" for number in range(len(lines), len(lines) + count)]
        lines.extend(new)
        with path.open("a") as out:
            out.write("".join(f"{line}\n" for line in new))

    worker = GroupWorker(tmp_path, url)
    write(30)
    try:
        worker.start()
        config = {"connector.class": f"{FILE}Connector", "file": str(path), "topic": "lines", "batch.size": "7"}
        body = {"name": "files", "config": config}
        eventually(lambda: worker.ask("POST", "/connectors", body)[0] == 201, 180, "the connector is made")
        eventually(lambda: committed_values(url, "lines"), 180, "a line comes")
        for rotate in (renamed, copied, packed):
            write(50)
            for pid in (worker.process.pid, *worker.tasks()):
                with_suppressed(lambda pid=pid: os.kill(pid, signal.SIGKILL))
            worker.process.wait(20)
            write(20)
            rotate(path)
            write(20)
            worker.start()
            eventually(lambda: len(committed_values(url, "lines")) >= len(lines), 120, "all lines come")
        assert committed_values(url, "lines") == lines
    finally:
        worker.end()


def beside(path):
    """The next free name of a rotated file; those that are there move on."""
    for number in (3, 2, 1):
        for end in ("", ".gz"):
            old = path.with_name(f"{path.name}.{number}{end}")
            if old.exists():
                old.rename(path.with_name(f"{path.name}.{number + 1}{end}"))
    return path.with_name(f"{path.name}.1")


def renamed(path):
    path.rename(beside(path))


def copied(path):
    shutil.copy2(path, beside(path))
    os.truncate(path, 0)


def packed(path):
    rotated = beside(path)
    rotated.with_name(f"{rotated.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
