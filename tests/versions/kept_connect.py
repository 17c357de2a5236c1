"""A Connect worker whose topics are kept here: a source that has read a part of a file, and a sink of what it sent."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from penstock.connect.rest import WorkerServer
from penstock.connect.worker_settings import WorkerConfig
from penstock.log import open_log

STRING = "org.apache.kafka.connect.storage.StringConverter"
SOURCE, SINK = "lines-in", "lines-out"
LINES = [f"line {number}" for number in range(60)]


def settings(root: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": f"sqlite:///{root}/log.db",
        "group.id": "workers",
        "config.storage.topic": "configs",
        "offset.storage.topic": "offsets",
        "status.storage.topic": "statuses",
        "key.converter": STRING,
        "value.converter": STRING,
        "offset.flush.interval.ms": "100",
        "listeners": "http://127.0.0.1:0",
    }


def connectors() -> dict[str, dict[str, str]]:
    """Return the connectors; their files are in the folder in which the worker runs."""
    files = "org.apache.kafka.connect.file.FileStream"
    return {
        SOURCE: {"connector.class": f"{files}SourceConnector", "file": "in.txt", "topic": "lines"},
        SINK: {"connector.class": f"{files}SinkConnector", "file": "out.txt", "topics": "lines"},
    }


def until(check: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s")


def ask(server: WorkerServer, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


def write_lines(root: Path, first: int, last: int) -> None:
    with (root / "in.txt").open("a") as file:
        file.writelines(f"{line}\n" for line in LINES[first:last])


def written(root: Path) -> list[str]:
    out = root / "out.txt"
    return out.read_text().splitlines() if out.exists() else []


def offsets_cover(root: Path, lines: int) -> bool:
    """Return whether the source's newest offset is behind that many lines of its file."""
    position = sum(len(line) + 1 for line in LINES[:lines])
    with open_log(settings(root)["bootstrap.servers"]) as log:
        values = [
            value
            for partition in range(log.partitions("offsets"))
            for batch in log.read_range("offsets", partition, 0, log.end_offset("offsets", partition))
            for value in batch.column("value").to_pylist()
        ]
    return any(value is not None and json.loads(value).get("position") == position for value in values)


@contextmanager
def running(root: Path) -> Iterator[WorkerServer]:
    """Run a worker in a folder."""
    with chdir(root):
        server = WorkerServer(WorkerConfig.of(settings(root), "distributed"))
        server.start()
        try:
            assert server.wait_until_ready(60)
            yield server
        finally:
            server.stop()


def begin(root: Path) -> None:
    write_lines(root, 0, 30)
    with running(root) as server:
        for name, config in connectors().items():
            ask(server, "POST", "/connectors", {"name": name, "config": config})
        until(lambda: len(written(root)) == 30 and offsets_cover(root, 30))
