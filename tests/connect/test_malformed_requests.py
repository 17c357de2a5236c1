"""Hundreds of wrong requests to one worker: each gets a clear answer, none ends in a trace, and the work goes on."""

import http.client
import json
import logging

import pytest

from malformed_requests import ALL, SINK, SOURCE
from penstock.connect.rest import WorkerServer
from penstock.connect.worker_settings import WorkerConfig
from test_connect_worker import ask, task_state, until
from test_connect_worker import settings as worker_settings


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("malformed")
    server = WorkerServer(WorkerConfig.of(worker_settings(folder, **{"tasks.in.process": "true"}), "distributed"))
    server.start()
    assert server.wait_until_ready(180)
    (folder / "in.txt").write_text("a\nb\n")
    source = {"connector.class": SOURCE, "file": str(folder / "in.txt"), "topic": "lines"}
    sink = {"connector.class": SINK, "file": str(folder / "out.txt"), "topics": "lines"}
    for name, config in (("f", source), ("s", sink)):
        assert ask(server, "POST", "/connectors", {"name": name, "config": config})[0] == 201
    for name, config in (("st", source), ("ss", sink)):
        body = {"name": name, "config": config, "initial_state": "STOPPED"}
        assert ask(server, "POST", "/connectors", body)[0] == 201
    until(lambda: (folder / "out.txt").exists() and (folder / "out.txt").read_text() == "a\nb\n")
    server.folder = folder
    yield server
    server.stop()


def send(server, wrong):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    try:
        connection.putrequest(wrong.method, wrong.path, skip_accept_encoding=True)
        body = wrong.body if isinstance(wrong.body, bytes | None) else json.dumps(wrong.body).encode()
        for name, value in wrong.headers.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("wrong", ALL, ids=str)
def test_a_wrong_request_gets_a_clear_answer(worker, wrong, caplog):
    with caplog.at_level(logging.WARNING):
        status, text = send(worker, wrong)
    assert status == wrong.status, text[:500]
    assert wrong.message in (json.loads(text)["message"] if text.startswith("{") else text)
    assert "Traceback" not in text
    assert not [record.getMessage() for record in caplog.records if record.exc_info]


def test_after_all_of_them_the_worker_answers_and_its_tasks_run(worker):
    assert len(ALL) > 100
    assert sorted(ask(worker, "GET", "/connectors")[1]) == ["f", "s", "ss", "st"]
    assert (task_state(worker, "f"), task_state(worker, "s")) == ("RUNNING", "RUNNING")
    with (worker.folder / "in.txt").open("a") as out:
        out.write("c\n")
    until(lambda: (worker.folder / "out.txt").read_text() == "a\nb\nc\n")


def test_a_client_that_goes_away_in_the_middle_leaves_no_trace(worker, caplog):
    connection = http.client.HTTPConnection("127.0.0.1", worker.port)
    connection.putrequest("POST", "/connectors")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", "1000")
    connection.endheaders(b"{")
    connection.close()
    assert ask(worker, "GET", "/")[0] == 200
    assert not [record for record in caplog.records if record.exc_info]
