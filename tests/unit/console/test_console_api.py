"""The JSON interface of the console: what it answers, and what it lets change."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from recorded import APPLICATION, Recorded, recorded

from penstock.console.actions import AUDIT, ask_to_stop, stop_asked
from penstock.console.recorder import NOW, read_facts
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.log.base import TopicPartition

API = "/api/v1"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with recorded(tmp_path_factory.mktemp("console"), writes=True) as found:
        number = found.batch()
        found.settle(number)
        yield found


def served(data: Recorded) -> Iterator[httpx.Client]:
    server = ConsoleServer(data.site, ConsoleAddress(port=0, token=None))
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=120) as found:
        yield found
    server.close()


@pytest.fixture(scope="module")
def http(data: Recorded) -> Iterator[httpx.Client]:
    yield from served(data)


def own(http: httpx.Client) -> dict[str, str]:
    return {"origin": str(http.base_url).rstrip("/"), "x-penstock": "1"}


def test_applications_have_state_lag_partitions_and_masked_settings(http: httpx.Client) -> None:
    (one,) = http.get(f"{API}/apps").json()
    assert (one["application"], one["state"]) == (APPLICATION, "RUNNING")
    found = http.get(f"{API}/apps/{APPLICATION}").json()
    assert found["lag"] == sum(each["lag"] for each in found["partitions"])
    assert found["facts"]["settings"]["application.id"] == APPLICATION
    assert http.get(f"{API}/apps/nothing").status_code == 404


def test_the_topology_is_sent_once_for_a_fingerprint(http: httpx.Client) -> None:
    found = http.get(f"{API}/apps/{APPLICATION}/topology")
    assert {"boxes", "arrows", "text", "mermaid"} <= found.json().keys()
    again = http.get(f"{API}/apps/{APPLICATION}/topology", headers={"if-none-match": found.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_batches_are_thinned_to_600_points_and_keep_their_sums(http: httpx.Client) -> None:
    whole = http.get(f"{API}/apps/{APPLICATION}/batches").json()
    assert 0 < len(whole["points"]) <= 601
    thin = http.get(f"{API}/apps/{APPLICATION}/batches", params={"step": 600_000}).json()
    assert len(thin["points"]) < len(whole["points"])
    for name in ("records_in", "batches", "dropped"):
        assert sum(each[name] for each in thin["points"]) == sum(each[name] for each in whole["points"])
    last = whole["points"][-1]["at_ms"]
    some = http.get(f"{API}/apps/{APPLICATION}/batches", params={"from": last - 100_000, "to": last}).json()
    step = max(some["step_ms"], 1)
    assert {last - 100_000 - step <= each["at_ms"] <= last for each in some["points"]} == {True}


def test_one_batch_has_its_tasks_and_one_that_is_gone_is_not_found(http: httpx.Client, data: Recorded) -> None:
    found = http.get(f"{API}/apps/{APPLICATION}/batches/{data.batches - 1}").json()
    assert found["tasks"]
    assert {"seconds", "records", "host"} <= found["tasks"][0].keys()
    assert http.get(f"{API}/apps/{APPLICATION}/batches/999999").status_code == 404


def test_rankings_tasks_nodes_and_errors(http: httpx.Client) -> None:
    ranked = http.get(f"{API}/apps/{APPLICATION}/top", params={"by": "seconds"}).json()
    assert {each["kind"] for each in ranked} <= {"task", "node"}
    assert http.get(f"{API}/apps/{APPLICATION}/top", params={"by": "x"}).status_code == 400
    assert all("batch" in each for each in http.get(f"{API}/apps/{APPLICATION}/tasks").json())
    node = http.get(f"{API}/apps/{APPLICATION}/nodes/KSTREAM-MAPVALUES-0000000001").json()
    assert node["runs"]
    assert {"drops", "lost", "dead_letter_topic"} == http.get(f"{API}/apps/{APPLICATION}/errors").json().keys()


def test_messages_are_found_by_filter_time_and_cursor(http: httpx.Client) -> None:
    found = http.get(f"{API}/topics/orders/messages", params={"at": "earliest", "filter": "value.total > 440"}).json()
    assert [each["value"]["id"] for each in found["messages"]] == [294, 295, 296, 297, 298, 299]
    first = http.get(f"{API}/topics/orders/messages", params={"at": "earliest", "limit": 100, "partition": 1}).json()
    assert (len(first["messages"]), first["next"]) == (100, None)
    assert http.get(f"{API}/topics/orders/messages", params={"at": "nonsense"}).status_code == 400
    assert http.get(f"{API}/topics/nothing/messages").status_code == 404
    assert http.get(f"{API}/topics/empty/messages").json() == {"messages": [], "searched": 0, "total": 0, "next": None}


def test_one_message_is_sent_whole_and_its_bytes_as_a_file(http: httpx.Client) -> None:
    assert http.get(f"{API}/topics/orders/0/1").json()["value"]["id"] == 3
    raw = http.get(f"{API}/topics/orders/0/1", params={"raw": "value"})
    assert json.loads(raw.content)["id"] == 3
    assert raw.headers["content-type"] == "application/octet-stream"
    assert raw.headers["content-disposition"].startswith("attachment")
    assert http.get(f"{API}/topics/orders/0/99999").status_code == 404
    assert http.get(f"{API}/topics/orders/9/0").status_code == 404


def test_groups_topics_alerts_health_and_metrics(http: httpx.Client) -> None:
    assert {"audit", APPLICATION} <= {each["group"] for each in http.get(f"{API}/groups").json()}
    assert http.get(f"{API}/groups/audit").json()["lag"] == 120
    assert http.get(f"{API}/groups/nobody").status_code == 404
    names = {each["name"] for each in http.get(f"{API}/topics", params={"internal": "false"}).json()}
    assert "orders" in names
    assert "os-check-os-counts-repartition" not in names
    assert isinstance(http.get(f"{API}/alerts").json(), list)
    assert http.get(f"{API}/health").json()["healthy"] is True
    assert http.get(f"{API}/ready").json() == {"ready": True}
    text = http.get(f"{API}/metrics").text
    assert f'penstock_alert{{application="{APPLICATION}",name="stuck"}} 0' in text
    assert http.get(f"{API}/nothing").status_code == 404


def events(http: httpx.Client, path: str, wanted: int, **headers: str) -> list[tuple[str, str, Any]]:
    found, name, identity = [], "", ""
    with http.stream("GET", f"{API}{path}", headers=headers) as answer:
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name, identity = line[7:], ""
            elif line.startswith("id: "):
                identity = line[4:]
            elif line.startswith("data: "):
                found.append((name, identity, json.loads(line[6:])))
                if len(found) >= wanted:
                    return found
    return found


def test_a_stream_of_batches_goes_on_behind_the_last_event_that_was_seen(http: httpx.Client, data: Recorded) -> None:
    newest = data.batches - 1
    found = events(http, f"/apps/{APPLICATION}/live", 4, **{"last-event-id": str(newest - 3)})
    assert [(name, identity) for name, identity, _ in found[:3]] == [
        ("batch", str(number)) for number in range(newest - 2, newest + 1)
    ]
    assert found[3][0] == "state"


def test_new_messages_come_as_events(http: httpx.Client) -> None:
    later = threading.Timer(
        1.0, lambda: http.post(f"{API}/topics/empty/messages", json={"value": "x"}, headers=own(http))
    )
    later.start()
    (found,) = events(http, "/topics/empty/tail", 1)
    later.join()
    assert (found[0], found[2]["value"]) == ("message", "x")


@pytest.mark.parametrize(
    "path",
    ["/groups/audit/reset", "/topics/orders/messages", f"/apps/{APPLICATION}/stop", "/connectors/x/restart", "/sql"],
)
def test_a_change_needs_an_origin_of_this_server_and_the_header(http: httpx.Client, path: str) -> None:
    good = own(http)
    for wrong in (
        {},
        {"origin": good["origin"]},
        {"x-penstock": "1"},
        {**good, "origin": "http://evil.example"},
        {**good, "sec-fetch-site": "cross-site"},
    ):
        assert http.post(API + path, json={}, headers=wrong).status_code == 403
    assert http.post(API + path, content="to=earliest", headers=good).status_code == 415


@pytest.mark.parametrize(
    "path", ["/groups/audit/reset", "/topics/orders/messages", f"/apps/{APPLICATION}/stop", "/connectors/x/restart"]
)
def test_a_console_without_the_permission_refuses_every_change(tmp_path: Any, path: str) -> None:
    with recorded(tmp_path) as data:
        for http in served(data):
            assert http.post(API + path, json={"to": "earliest"}, headers=own(http)).status_code == 405


def test_a_reset_is_planned_then_done_and_logged(
    http: httpx.Client, data: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    path, to = f"{API}/groups/audit/reset", {"to": "offset:10"}
    plan = http.post(path, params={"dry_run": "true"}, json=to, headers=own(http)).json()
    assert plan["done"] is False
    assert [(each["before"], each["after"]) for each in plan["moves"]] == [(60, 10)] * 3
    assert data.log.committed_offsets("audit")[TopicPartition("orders", 0)] == 60
    assert http.post(path, json=to, headers=own(http)).json()["done"] is True
    assert data.log.committed_offsets("audit")[TopicPartition("orders", 0)] == 10
    data.log.commit_offsets("audit", {TopicPartition("orders", n): 60 for n in range(3)})
    (line,) = [record.getMessage() for record in caplog.records if record.name == AUDIT]
    assert "reset group audit" in line
    assert "127.0.0.1" in line
    refused = http.post(f"{API}/groups/{APPLICATION}/reset", json=to, headers=own(http))
    assert refused.status_code == 409
    assert "refused" in caplog.records[-1].getMessage()
    assert http.post(path, json={"to": "x"}, headers=own(http)).status_code == 400


def test_a_message_is_sent_in_the_noted_format_and_a_wrong_one_is_refused(http: httpx.Client, data: Recorded) -> None:
    before = sum(data.log.end_offsets(["orders"]).values())
    path = f"{API}/topics/orders/messages"
    sent = http.post(path, json={"key": "u1", "value": '{"id": 300, "total": 1}'}, headers=own(http))
    assert sent.json() == {"topic": "orders", "sent": 1}
    assert sum(data.log.end_offsets(["orders"]).values()) == before + 1
    for wrong in ({"value": "{"}, {"value": 1}, {"value": "1", "partition": 99}, {"value": "1", "partition": "0"}):
        assert http.post(path, json=wrong, headers=own(http)).status_code == 400
    deep = "[" * 3000 + "]" * 3000
    assert http.post(path, content=deep, headers={**own(http), "content-type": "application/json"}).status_code == 400
    large = json.dumps({"value": "x" * 70_000})
    assert http.post(path, content=large, headers={**own(http), "content-type": "application/json"}).status_code == 413
    assert sum(data.log.end_offsets(["orders"]).values()) == before + 1


def test_the_application_is_stopped_by_its_own_process_or_asked_to_by_its_checkpoint(
    http: httpx.Client, data: Recorded
) -> None:
    path = f"{API}/apps/{APPLICATION}/stop"
    assert http.post(path, json={}, headers=own(http)).status_code == 409  # nothing here can stop it
    application = data.site.applications.get(APPLICATION)
    stopped = threading.Event()
    application.stop = stopped.set  # type: ignore[union-attr]
    assert http.post(path, json={}, headers=own(http)).json() == {"application": APPLICATION, "stopping": True}
    assert stopped.is_set()
    checkpoint = str(data.root / "checkpoint")
    data.settle(data.batches - 1, written=True)
    started = (read_facts(checkpoint, NOW) or {})["started_ms"]
    assert not stop_asked(checkpoint, started)
    ask_to_stop(checkpoint, APPLICATION)
    assert stop_asked(checkpoint, started)
    assert not stop_asked(checkpoint, started + 1)


def test_hidden_fields_are_hidden_from_the_interface_too(tmp_path: Any) -> None:
    with recorded(tmp_path, masked=("value.user",)) as data:
        for http in served(data):
            found = http.get(f"{API}/topics/orders/messages", params={"filter": 'value.user = "u1"'}).json()
            assert found["messages"] == []
            assert http.get(f"{API}/topics/orders/0/1").json()["value"]["user"] == "(hidden)"
            assert http.get(f"{API}/topics/orders/0/1", params={"raw": "value"}).status_code == 403
    with recorded(tmp_path / "none", messages=False) as data:
        for http in served(data):
            for path in ("/topics/orders/messages", "/topics/orders/0/1", "/topics/orders/tail"):
                assert http.get(API + path).status_code == 403
