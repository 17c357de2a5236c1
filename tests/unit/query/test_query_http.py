"""Queries over HTTP: what is answered, by whom, and what is refused."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from contextlib import closing

import httpx
import pytest
from fastapi.testclient import TestClient

from penstock.errors import EnvironmentProblemError
from penstock.query.http.routes import make_app
from penstock.query.http.server import QueryServer
from penstock.query.http.service import QueryService
from penstock.query.instances import HostInfo, Instance, Instances, Registration

from .conftest import T


@pytest.fixture
def service(checkpoint, state):
    return QueryService(state)


@pytest.fixture
def client(service):
    return TestClient(make_app(service))


def test_keys(checkpoint, client):
    checkpoint.fill()
    answer = client.get("/stores/counts/keys/k3").json()
    assert (answer["key"], answer["value"], answer["timestamp"], answer["partition"]) == ("k3", 3, T + 3, 1)
    assert (answer["batch"], answer["position"], answer["role"]) == (0, {"events": {"1": 9}}, "standby")
    assert answer["staleness_ms"] >= 0
    assert client.get("/stores/plain/keys/6b33", params={"encoding": "hex"}).json()["value"] == "v3"
    versions = client.get("/stores/versions/keys/k1", params={"as_of": T + 50}).json()
    assert (versions["value"], versions["valid_to"]) == ("old", T + 100)
    found = client.get("/stores/versions/versions/k1").json()["entries"]
    assert [entry["value"] for entry in found] == ["new", "old"]


def test_an_application_is_ready_when_its_tasks_run(checkpoint, client, service):
    checkpoint.fill()
    assert client.get("/ready").json() == {"application": service.state.application_id, "ready": True}
    for phase, code in (("REBALANCING", 503), ("RUNNING", 200), ("PENDING_SHUTDOWN", 503)):
        service.phase = lambda phase=phase: phase
        answer = client.get("/ready")
        assert (answer.status_code, answer.json()["state"]) == (code, phase)


def test_ranges_are_cut_into_pages(checkpoint, client):
    checkpoint.fill()

    def pages(path, **params):
        cursor, found = None, []
        while True:
            page = client.get(path, params={**params, "limit": 2} | ({"cursor": cursor} if cursor else {})).json()
            assert len(page["entries"]) <= 2
            found += page["entries"]
            cursor = page["next"]
            if cursor is None:
                return [entry["key"] for entry in found]

    everything = [f"k{n}" for n in range(6)]
    assert pages("/stores/counts/range") == everything
    assert pages("/stores/counts/range", reverse=True) == everything[::-1]
    assert pages("/stores/counts/range", **{"from": "k1", "to": "k4"}) == everything[1:5]
    assert pages("/stores/counts/range", **{"from": "k1", "to": "k4", "reverse": True}) == everything[4:0:-1]
    assert pages("/stores/plain/prefix", prefix="k") == everything
    assert sorted(pages("/stores/windows/windows", **{"from": T + 1000})) == everything
    assert sorted(pages("/stores/sessions/sessions")) == everything


def test_windows_and_sessions_of_a_key(checkpoint, client):
    checkpoint.fill()
    windows = client.get("/stores/windows/windows", params={"key": "k2"}).json()
    assert [(e["start"], e["end"], e["value"]) for e in windows["entries"]] == [
        (T, T + 1000, 2),
        (T + 1000, T + 2000, 12),
    ]
    first = client.get("/stores/windows/windows", params={"key": "k2", "limit": 1, "reverse": True}).json()
    assert [e["value"] for e in first["entries"]] == [12]
    assert first["next"] == "1"
    sessions = client.get("/stores/sessions/sessions", params={"key": "k2"}).json()
    assert [(e["start"], e["end"], e["value"]) for e in sessions["entries"]] == [(T, T + 50, 2)]


def test_what_there_is(checkpoint, client):
    checkpoint.fill()
    stores = {store["name"]: store for store in client.get("/stores").json()}
    assert stores["windows"]["window_size_ms"] == 1000
    assert client.get("/stores/plain").json()["approximate_entries"] == 6
    about = client.get("/").json()
    assert (about["application"], about["batch"], about["instances"]) == ("app", 0, [])
    assert client.get("/health").json()["records_behind"] is None


@pytest.mark.parametrize(
    ("path", "status", "code", "text"),
    [
        ("/stores/count/keys/k", 404, "STORE_NOT_FOUND", "Did you mean counts"),
        ("/stores/counts/keys/none", 404, "KEY_NOT_FOUND", "no key 'none'"),
        ("/stores/windows/keys/k1", 400, "UNKNOWN_QUERY_TYPE", "queried by windows"),
        ("/stores/counts/windows", 400, "UNKNOWN_QUERY_TYPE", "keys, range and prefix"),
        ("/stores/counts/keys/zz?encoding=hex", 400, "BAD_KEY", "hex"),
        ("/stores/counts/keys/zz?encoding=roman", 400, "BAD_REQUEST", "encoding"),
        ("/stores/counts/range?limit=0", 400, "BAD_REQUEST", "limit"),
        ("/stores/windows/windows?cursor=x", 400, "BAD_CURSOR", "next"),
        ("/stores/counts/keys/k1?min_position=7", 400, "BAD_REQUEST", "topic, partition, offset"),
        ("/stores/counts/keys/k1?route=x", 400, "BAD_REQUEST", "redirect"),
    ],
)
def test_refusals_say_what_to_do(checkpoint, client, path, status, code, text):
    checkpoint.fill()
    answer = client.get(path)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["code"] == code
    assert text in f"{error['message']} {error['hint']}"


def test_an_answer_must_be_fresh_enough(checkpoint, client):
    checkpoint.fill()
    seen = json.dumps({"events": {"0": 9}})
    assert client.get("/stores/counts/keys/k0", params={"min_position": seen}).status_code == 200
    later = client.get("/stores/counts/keys/k0", params={"min_position": json.dumps({"events": {"0": 10}})})
    assert later.status_code == 503
    assert later.json()["error"]["code"] == "NOT_UP_TO_BOUND"
    assert later.json()["position"] == {"events": {"0": 9, "1": 9}}
    assert client.get("/stores/counts/keys/k0?max_staleness_ms=60000").status_code == 200
    os.utime(f"{checkpoint.location}/spark/commits/0", (1, 1))
    assert client.get("/stores/counts/keys/k0?max_staleness_ms=60000").status_code == 503


def test_nothing_has_been_committed(checkpoint, client):
    assert client.get("/stores/counts/keys/k0").json()["error"]["code"] == "KEY_NOT_FOUND"
    assert client.get("/stores/counts/range").json()["entries"] == []


def test_routing_to_the_instance_that_runs_the_application(checkpoint, state):
    checkpoint.fill()
    active_state = checkpoint.state(own_root=checkpoint.root / "another")
    active = QueryServer(QueryService(active_state, is_active=lambda: True), role="active")
    active.start()
    standby = QueryServer(QueryService(state))
    standby.start()
    try:
        with httpx.Client(base_url=standby.url, trust_env=False) as http:
            assert http.get("/stores/counts/keys/k1").json()["role"] == "standby"
            forwarded = http.get("/stores/counts/keys/k1", params={"route": "forward"})
            assert (forwarded.json()["role"], forwarded.json()["host"]) == ("active", str(active.host_info))
            redirect = http.get("/stores/counts/keys/k1", params={"route": "redirect"})
            assert redirect.status_code == 307
            assert redirect.json()["active_host"] == str(active.host_info)
            assert httpx.get(redirect.headers["location"], trust_env=False).json()["value"] == 1
            metadata = http.get("/metadata/counts/k1").json()
            assert metadata["active_host"] == str(active.host_info)
            assert metadata["standby_hosts"] == [str(standby.host_info)]
            active.close()
            time.sleep(1.1)  # how long a server may remember who is alive
            again = http.get("/stores/counts/keys/k1", params={"route": "forward"})
            assert (again.status_code, again.json()["role"]) == (200, "standby")
            assert http.get("/metadata/counts/k1").json()["active_host"] is None
    finally:
        active.close()
        standby.close()
        active_state.close()


def test_an_instance_that_others_cannot_reach_is_named_once_and_its_queries_are_answered(checkpoint, state, caplog):
    checkpoint.fill()
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    noted = Registration(checkpoint.location, Instance("127.0.0.1", port, "active", machine="far"))
    standby = QueryServer(QueryService(state))
    standby.start()
    try:
        with httpx.Client(base_url=standby.url, trust_env=False) as http:
            for _ in range(3):
                answer = http.get("/stores/counts/keys/k1", params={"route": "forward"})
                assert (answer.status_code, answer.json()["value"], answer.json()["role"]) == (200, 1, "standby")
    finally:
        noted.close()
        standby.close()
    [said] = [each.getMessage() for each in caplog.records if "cannot be passed on" in each.getMessage()]
    assert f"the instance on far, which says that it is at 127.0.0.1:{port}: " in said
    assert "set its application.server to a host and port by which other machines reach it" in said


def test_instances_that_have_died_do_not_count(checkpoint):
    found = Instances(checkpoint.location, refresh_s=0)
    noted = Registration(checkpoint.location, Instance("localhost", 7070, "active"))
    assert [one.host_info for one in found.alive()] == [HostInfo("localhost", 7070)]
    gone = Instance("localhost", 7071, "active", machine=socket.gethostname(), pid=2**22 + 1, heartbeat_ms=2**62)
    checkpoint.write(gone.document, json.dumps({f: getattr(gone, f) for f in gone.__dataclass_fields__}))
    silent = Instance("elsewhere", 7072, "standby", machine="elsewhere", heartbeat_ms=1)
    checkpoint.write(silent.document, json.dumps({f: getattr(silent, f) for f in silent.__dataclass_fields__}))
    assert len(found.alive()) == 1
    found.forget_dead()
    noted.close()
    assert found.alive() == []


def test_without_the_extra(service, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(EnvironmentProblemError, match=r"penstock\[query\]"):
        QueryServer(service)


def test_metrics_are_those_of_the_process_that_runs_the_application(service, client):
    answer = client.get("/metrics")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "NO_METRICS"
    service.exposition = lambda: "# TYPE a gauge\na 1\n"
    answer = client.get("/metrics")
    assert (answer.text, answer.headers["content-type"]) == (
        "# TYPE a gauge\na 1\n",
        "text/plain; version=0.0.4; charset=utf-8",
    )


def test_metrics_as_json_are_those_that_match(service, client):
    from penstock.errors import ConfigError

    assert client.get("/metrics/json").json()["error"]["code"] == "NO_METRICS"

    def figures(matching):
        if matching == "(":
            raise ConfigError("'(' is not a regular expression")
        return {"metrics": [matching]}

    service.figures = figures
    assert client.get("/metrics/json?matching=^a").json() == {"metrics": ["^a"]}
    refused = client.get("/metrics/json?matching=(")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "BAD_PATTERN")
