"""Disks that fill up under sinks, databases and the log: nothing is lost, cut or doubled, and the worker lives."""

import resource
from contextlib import contextmanager

import pytest
from sqlalchemy import create_engine, text

from penstock.connect.connectors.file_stream import FileStreamSinkConnector
from penstock.connect.connectors.objects import ObjectSinkConnector
from penstock.connect.connectors.sql_sink import SqlSinkConnector
from penstock.connect.rest import WorkerServer
from penstock.connect.testing import ConnectTestDriver
from penstock.connect.worker_settings import WorkerConfig
from small_disk import fill, small_disk
from test_connect_worker import FILE_SINK, FILE_SOURCE, ask, task_state, until, values
from test_connect_worker import settings as worker_settings

__all__ = ["small_disk"]


@contextmanager
def files_of_at_most(size):
    """No file of this process may become larger: its writes fail as on a full disk, in part at first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 5, 9, 12])
def test_lines_that_find_no_space_are_written_once_there_is_some(tmp_path, room):
    out = tmp_path / "out.txt"
    driver = ConnectTestDriver(FileStreamSinkConnector, {"file": str(out), "topics": "in"})
    driver.produce("in", "before")
    driver.put()
    driver.produce("in", "first", "second")
    with files_of_at_most(len("before\n") + room):
        assert driver.put() == driver.put() == []
        assert out.read_text() == "before\n"
    driver.put()
    driver.stop()
    assert out.read_text() == "before\nfirst\nsecond\n"


def test_objects_and_rows_that_find_no_space_are_there_once_when_there_is_some(small_disk):
    config = {"topics": "in", "store.url": f"file://{small_disk}/objects", "format": "json", "flush.size": "2"}
    objects = ConnectTestDriver(ObjectSinkConnector, config)
    url = f"sqlite:///{small_disk}/rows.db"
    rows = ConnectTestDriver(SqlSinkConnector, {"topics": "in", "connection.url": url, "auto.create": "true"})
    for driver in (objects, rows):
        driver.produce("in", {"n": 0}, {"n": 1})
        assert len(driver.put()) == 2
    filler = fill(small_disk, 0)
    big = "x" * 300_000
    for driver in (objects, rows):
        driver.produce("in", {"n": 2, "x": big} if driver is objects else {"n": 2}, {"n": 3})
        driver.put()
    with create_engine(url).connect() as connection:
        assert connection.execute(text('SELECT count(*) FROM "in"')).scalar() in (2, 4)  # SQLite may have had room
    filler.unlink()
    for driver in (objects, rows):
        driver.put_all()
        driver.stop()
    found = [line for file in sorted(small_disk.glob("objects/**/*.json")) for line in file.read_text().splitlines()]
    assert len(found) == 4
    assert sum(big in line for line in found) == 1
    with create_engine(url).connect() as connection:
        assert [n for (n,) in connection.execute(text('SELECT n FROM "in" ORDER BY n'))] == [0, 1, 2, 3]


def test_a_worker_lives_through_a_full_disk_of_its_log_and_its_tasks_go_on(small_disk, tmp_path):
    more = {"tasks.in.process": "true"}
    server = WorkerServer(WorkerConfig.of(worker_settings(small_disk, **more), "distributed"))
    server.start()
    try:
        assert server.wait_until_ready(180)
        source, out = tmp_path / "in.txt", tmp_path / "out.txt"
        lines = [f"line {number} " + "x" * 500 for number in range(2000)]
        source.write_text("".join(f"{line}\n" for line in lines[:10]))
        again = {"restart.policy": "on-failure", "restart.delay.ms": "100"}
        reading = {"connector.class": FILE_SOURCE, "file": str(source), "topic": "lines", **again}
        writing = {"connector.class": FILE_SINK, "file": str(out), "topics": "lines", **again}
        for name, config in (("f", reading), ("s", writing)):
            assert ask(server, "POST", "/connectors", {"name": name, "config": config})[0] == 201
        until(lambda: out.exists() and len(out.read_text().splitlines()) == 10)
        filler = fill(small_disk, 64 << 10)
        with source.open("a") as more_lines:
            more_lines.write("".join(f"{line}\n" for line in lines[10:]))
        until(lambda: "disk" in str(ask(server, "GET", "/connectors/f/status")) or "disk" in progress(server))
        assert ask(server, "GET", "/")[0] == 200
        assert ask(server, "GET", "/connectors")[1] == ["f", "s"]
        refused, answer = ask(server, "PUT", "/connectors/new/config", {**writing, "padding": "x" * 200_000})
        assert refused == 500
        assert "disk" in answer["message"]
        filler.unlink()
        until(lambda: len(set(out.read_text().splitlines())) == len(lines))
        assert values(server.worker.config.log_url, "lines") == lines
        until(lambda: (task_state(server, "f"), task_state(server, "s")) == ("RUNNING", "RUNNING"))
    finally:
        server.stop()


def progress(server):
    return str(ask(server, "GET", "/penstock/progress")[1])
