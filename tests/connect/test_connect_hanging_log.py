"""A worker whose log hangs: what only looks is answered from memory, what changes something waits its time."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from brokers import running_broker
from eventually import eventually
from penstock.connect.rest import WorkerServer
from penstock.connect.worker_settings import WorkerConfig
from test_connect_worker import FILE_SOURCE, ask, settings

LOOKS = (
    "/",
    "/connectors",
    "/connectors?expand=status&expand=info",
    "/connectors/f",
    "/connectors/f/config",
    "/connectors/f/status",
    "/connectors/f/tasks",
    "/connectors/f/tasks/0/status",
    "/connectors/f/topics",
    "/connector-plugins",
    "/admin/loggers",
    "/penstock/progress",
)
NEVER_S = 600.0


@contextmanager
def worker(folder: Path, patience: tuple[float, float] = (NEVER_S, NEVER_S), **more: str) -> Iterator[WorkerServer]:
    """A worker with a connector ``f`` that runs."""
    (folder / "in.txt").write_text("one\n")
    config = WorkerConfig.of(settings(folder, **{"tasks.in.process": "true", **more}), "distributed")
    server = WorkerServer(config, patience)
    server.start()
    try:
        assert server.wait_until_ready(120)
        connector = {"connector.class": FILE_SOURCE, "file": str(folder / "in.txt"), "topic": "lines"}
        eventually(lambda: ask(server, "POST", "/connectors", {"name": "f", "config": connector})[0] in (201, 409))
        eventually(lambda: states(server) == ["RUNNING", "RUNNING"])
        eventually(lambda: ask(server, "GET", "/connectors/f/topics")[1] == {"f": {"topics": ["lines"]}})
        yield server
    finally:
        server.stop()


def states(server: WorkerServer) -> list[str]:
    status, body = ask(server, "GET", "/connectors/f/status")
    return [] if status != 200 else [body["connector"]["state"], *(task["state"] for task in body["tasks"])]


@contextmanager
def write_lock_held(folder: Path) -> Iterator[None]:
    """Nobody can write to the embedded log until the block ends."""
    with closing(sqlite3.connect(folder / "log.db", timeout=60, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def hangs(server: WorkerServer) -> bool:
    return not server.worker.herder.passed(0.5)


def test_what_only_looks_is_answered_while_more_requests_wait_than_there_are_threads(tmp_path):
    with worker(tmp_path) as server, ThreadPoolExecutor(48) as clients:
        with write_lock_held(tmp_path):
            asked = [clients.submit(ask, server, "PUT", "/connectors/f/pause", timeout=300) for _ in range(48)]
            eventually(lambda: sum(each.name.startswith("connect-request") for each in threading.enumerate()) >= 32)
            eventually(lambda: hangs(server))
            answers = {path: ask(server, "GET", path) for path in LOOKS}
            unknown = [
                ask(server, "GET", f"/connectors/none{rest}")[0] for rest in ("", "/config", "/status", "/tasks")
            ]
            assert not any(each.done() for each in asked)  # they wait for the log all the while
        assert {each.result()[0] for each in asked} == {202}
        assert {path: status for path, (status, _) in answers.items()} == dict.fromkeys(LOOKS, 200)
        assert answers["/"][1]["kafka_cluster_id"] == server.worker.log.identity()
        assert answers["/connectors"][1] == ["f"]
        assert answers["/connectors/f/status"][1]["tasks"][0]["state"] == "RUNNING"
        assert answers["/connectors/f/topics"][1] == {"f": {"topics": ["lines"]}}
        assert unknown == [404] * 4
        eventually(lambda: states(server) == ["PAUSED", "PAUSED"])


def test_a_change_that_waits_too_long_is_answered_with_an_error_and_done_later(tmp_path):
    with worker(tmp_path, (0.3, 0.3)) as server:
        with write_lock_held(tmp_path):
            body = eventually(lambda: hanging(ask(server, "PUT", "/connectors/f/pause")))
            assert body["message"].startswith("Request timed out. The worker is currently ")
            assert ", which began at 20" in body["message"]
            body = eventually(lambda: hanging(ask(server, "GET", "/health")))
            assert body["status"] == "unhealthy"
            assert body["message"].startswith(
                "Worker was unable to handle this request and may be unable to handle other requests. The worker is "
                "currently "
            )
        eventually(lambda: states(server) == ["PAUSED", "PAUSED"])
        eventually(lambda: ask(server, "GET", "/health")[0] == 200)


def hanging(answer):
    """The body of an answer that names what the worker waits for, once it waits."""
    status, body = answer
    return body if status == 500 and "The worker is currently " in body["message"] else None


def test_what_only_looks_is_answered_while_a_broker_hangs(tmp_path):
    with running_broker(tmp_path / "kafka") as broker:
        servers = {"bootstrap.servers": broker.settings.bootstrap_servers}
        with worker(tmp_path, (NEVER_S, 0.5), **servers) as server:
            pid = broker.status().pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            try:
                eventually(lambda: ask(server, "GET", "/health")[0] == 500)
                answers = {path: ask(server, "GET", path)[0] for path in LOOKS}
                eventually(lambda: ask(server, "GET", "/health")[0] == 500)  # it hangs all the while
            finally:
                os.kill(pid, signal.SIGCONT)
            assert answers == dict.fromkeys(LOOKS, 200)
            eventually(lambda: ask(server, "GET", "/health")[0] == 200, 300)


@pytest.mark.parametrize("path", ["/connectors/f", "/connectors/f/status"])
def test_what_another_worker_has_written_just_now_is_seen(tmp_path, path):
    with worker(tmp_path) as first:
        config = WorkerConfig.of(settings(tmp_path, **{"tasks.in.process": "true"}), "distributed")
        second = WorkerServer(config)
        try:
            second.start()
            assert second.wait_until_ready(120)
            eventually(lambda: ask(second, "GET", path)[0] == 200)
            eventually(lambda: ask(second, "DELETE", "/connectors/f")[0] in (204, 404))
            eventually(lambda: ask(second, "GET", path)[0] == 404)
            eventually(lambda: ask(first, "GET", path)[0] == 404)
        finally:
            second.stop()
