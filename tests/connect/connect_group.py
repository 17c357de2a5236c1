"""Workers of one group as processes, which can be killed, stopped and started again."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil

from penstock.log import open_log
from penstock.tools.broker.broker_settings import free_port

HERE = Path(__file__).parent
STRING = "org.apache.kafka.connect.storage.StringConverter"
COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()", "connect", "worker"]
SESSION_MS = 6_000


class GroupWorker:
    """One worker.

    Args:
        folder: Where its settings and its log are.
        url: The topics' log.
        more: Settings besides those that all have.
    """

    def __init__(self, folder, url, **more):
        self.port = free_port()
        self.id = f"127.0.0.1:{self.port}"
        self.folder = folder
        settings = {
            "bootstrap.servers": url,
            "group.id": "soak",
            "config.storage.topic": "soak-configs",
            "offset.storage.topic": "soak-offsets",
            "offset.storage.partitions": "3",
            "status.storage.topic": "soak-statuses",
            "status.storage.partitions": "1",
            "key.converter": STRING,
            "value.converter": STRING,
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": str(SESSION_MS),
            "heartbeat.interval.ms": "1000",
            "listeners": f"http://{self.id}",
            "plugin.path": str(HERE / "counted_connectors.py"),
            **more,
        }
        self.file = folder / f"{self.port}.properties"
        self.file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.process = None

    def start(self):
        with (self.folder / f"{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*COMMAND, str(self.file)], cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )

    def tasks(self):
        """The processes of its tasks: those that its server of forks has made."""
        try:
            below = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        parents = {each.pid: each.ppid() for each in below if each.is_running()}
        return [pid for pid, parent in parents.items() if parent != self.process.pid]

    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        os.kill(self.process.pid, number)

    def end(self):
        if self.process is None:
            return
        below = [self.process.pid, *self.tasks()]
        for pid in below:
            with_suppressed(lambda pid=pid: os.kill(pid, signal.SIGCONT))
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            for pid in below:
                with_suppressed(lambda pid=pid: os.kill(pid, signal.SIGKILL))
            self.process.wait(20)

    def ask(self, method, path, body=None, timeout=15):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.id}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")
        except OSError:
            return 0, None


def with_suppressed(act):
    try:
        act()
    except ProcessLookupError:
        return


def eventually(check, seconds, what):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


def committed_values(url, topic):
    """The values of all committed records of a topic."""
    with open_log(url) as log:
        if topic not in {info.name for info in log.topics()}:
            return []
        found = []
        for number in range(log.partitions(topic)):
            for batch in log.read_range(
                topic, number, log.beginning_offset(topic, number), log.end_offset(topic, number)
            ):
                found += [value.decode() for value in batch.column("value").to_pylist()]
        return found
