"""Topics with their size, rate, consumers and settings, what a console creates and changes, and how answers are sent."""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from recorded import APPLICATION, Recorded, recorded, records

from penstock.base.clock import unix_ms
from penstock.cli.servers.console_sources import ConnectorsOfWorker
from penstock.connect.worker_client import ConnectClient
from penstock.console import web
from penstock.console.actions import AUDIT
from penstock.console.part_interfaces import ConnectorState
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.log.base import TopicPartition
from standalone_worker import standalone_worker

API = "/api/v1"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with recorded(tmp_path_factory.mktemp("console"), writes=True) as found:
        yield found


@pytest.fixture(scope="module")
def http(data: Recorded) -> Iterator[httpx.Client]:
    server = ConsoleServer(data.site, ConsoleAddress(port=0, token=None))
    server.start()
    url = f"http://127.0.0.1:{server.port}"
    with httpx.Client(base_url=url, headers={"origin": url, "x-penstock": "1"}, trust_env=False, timeout=120) as found:
        yield found
    server.close()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, data: Recorded) -> Iterator[ConnectClient]:
    with standalone_worker(tmp_path_factory.mktemp("worker")) as client:
        data.site.connectors = ConnectorsOfWorker(client)
        yield client
        data.site.connectors = None


def test_a_topic_has_its_size_rate_consumers_and_settings(http: httpx.Client, data: Recorded) -> None:
    data.log.create_topic("busy", 2, {"retention.ms": "3600000"})
    later = unix_ms() + 3_600_000  # however long the machine takes for this test
    for partition in range(2):
        data.log.append("busy", partition, records([(later, "k", "v" * 100)] * 300))
    page = http.get("/topics/busy/facts").text
    assert "<b>10</b> /s in the last minute" in page
    size = re.search(r"about <b>([\d.]+) KiB", page)  # an estimate: records of about 100 bytes
    assert size is not None
    assert 1 < float(size[1]) < 200
    assert "retention.ms" in page
    orders = http.get("/topics/orders/facts").text
    assert 'href="/groups/audit"' in orders
    assert "120" in orders  # 300 - 3 * 60
    assert http.get("/topics/nothing/facts").status_code == 404


def test_topics_are_created_and_changed_after_a_look_with_a_line_in_the_log(
    http: httpx.Client, data: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    body = {"topic": "made-here", "partitions": 3, "settings": "cleanup.policy=compact\n"}
    assert http.post(f"{API}/topics", json=body).json() == {"topic": "made-here", "created": True}
    assert data.log.partitions("made-here") == 3
    assert http.post(f"{API}/topics", json=body).status_code == 409
    for wrong in ({"topic": ""}, {"topic": "x", "partitions": 0}, {"topic": "x", "settings": "no equals sign"}):
        assert http.post(f"{API}/topics", json=wrong).status_code == 400
    change = {"settings": "cleanup.policy=delete\nretention.ms=60000"}
    plan = http.post(f"{API}/topics/made-here/config?dry_run=true", json=change).json()
    assert plan["changes"] == ["cleanup.policy: compact -> delete", "retention.ms: default -> 60000"]
    assert data.log.topic("made-here").config["cleanup.policy"] == "compact"
    assert http.post(f"{API}/topics/made-here/config", json=change).status_code == 200
    assert data.log.topic("made-here").config["retention.ms"] == "60000"
    http.post(f"{API}/topics/made-here/config", json={"settings": "retention.ms="})
    assert "retention.ms" not in data.log.topic("made-here").config
    said = [each.getMessage() for each in caplog.records if each.name == AUDIT]
    assert any("create a topic: done: topic made-here" in each for each in said)
    assert any("cleanup.policy: compact -> delete; retention.ms: default -> 60000" in each for each in said)


def test_partitions_are_added_after_a_warning(
    http: httpx.Client, data: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    data.log.create_topic("grows", 2)
    data.log.commit_offsets("its-reader", {TopicPartition("grows", 0): 0})
    address = f"{API}/topics/grows/partitions"
    plan = http.post(f"{address}?dry_run=true", json={"partitions": 3}).json()
    assert plan["changes"] == ["partitions: 2 -> 3"]
    assert "Keys move" in plan["note"]
    assert "its-reader" in plan["note"]
    assert data.log.partitions("grows") == 2
    for wrong in (2, 0, "3", None, True, 100_000):
        assert http.post(address, json={"partitions": wrong}).status_code == 400
    assert http.post(address, json={"partitions": 3}).status_code == 200
    assert data.log.partitions("grows") == 3
    assert any("add partitions to grows: done" in each.getMessage() for each in caplog.records)
    data.log.create_topic(f"{APPLICATION}-europe", 1)  # begins like an internal one, and is none
    assert http.post(f"{API}/topics/{APPLICATION}-europe/partitions", json={"partitions": 2}).status_code == 200
    internal = f"{APPLICATION}-os-counts-repartition"
    refused = http.post(f"{API}/topics/{internal}/partitions", json={"partitions": 50})
    assert refused.status_code == 409
    assert "Add partitions" not in http.get(f"/topics/{internal}/facts").text


def test_a_topic_is_deleted_by_its_name_alone(
    http: httpx.Client, data: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    data.log.create_topic("goes", 2)
    data.log.append("goes", 1, records([(1, "k", "v")] * 3))
    data.log.commit_offsets("reader-of-it", {TopicPartition("goes", 1): 1})
    address = f"{API}/topics/goes/delete"
    plan = http.post(f"{address}?dry_run=true", json={}).json()
    assert "3 offsets in 2 partitions are lost" in plan["note"]
    assert "reader-of-it" in plan["note"]
    for wrong in ({}, {"confirm": "go"}, {"confirm": "GOES"}, {"confirm": True}):
        assert http.post(address, json=wrong).status_code == 400
    assert "goes" in {each.name for each in data.log.topics()}
    assert http.post(address, json={"confirm": "goes"}).json()["deleted"] is True
    assert "goes" not in {each.name for each in data.log.topics()}
    assert http.post(address, json={"confirm": "goes"}).status_code == 404
    assert any("delete topic goes: done: topic goes" in each.getMessage() for each in caplog.records)
    internal = f"{APPLICATION}-os-counts-repartition"
    refused = http.post(f"{API}/topics/{internal}/delete", json={"confirm": internal})
    assert refused.status_code == 409
    assert "which runs" in refused.json()["error"]["message"]


def test_each_table_with_a_head_can_be_sorted() -> None:
    for page in sorted((Path(web.__file__).parent / "templates").glob("*.html")):
        tables = re.findall(r"<table([^>]*)>\s*<thead>", page.read_text(encoding="utf-8"))
        names = [re.search(r'id="([\w-]+)"', attributes) for attributes in tables]
        assert None not in names, f"a table of {page.name} has no id, by which an address names it"
        assert len({name[1] for name in names if name}) == len(names), page.name


def test_forms_that_change_something_put_nothing_into_addresses(http: httpx.Client) -> None:
    pages = [
        http.get(path).text for path in ("/", "/topics", "/topics/orders", "/topics/orders/facts", "/groups/audit")
    ]
    forms = re.findall(r"<form[^>]*data-write=[^>]*>", "".join(pages))
    assert len(forms) >= 5
    assert all('method="post"' in form for form in forms)  # also while the script that sends them does not run


def test_a_console_that_only_reads_changes_no_topic(tmp_path: Path) -> None:
    with recorded(tmp_path) as data:
        server = ConsoleServer(data.site, ConsoleAddress(port=0, token=None))
        server.start()
        url = f"http://127.0.0.1:{server.port}"
        with httpx.Client(base_url=url, headers={"origin": url, "x-penstock": "1"}, trust_env=False) as http:
            for path in ("/topics", "/topics/orders/config", "/topics/orders/config?dry_run=true", "/connectors"):
                assert http.post(f"{API}{path}", json={"topic": "x"}).status_code in (403, 405)
            assert 'data-write="' not in http.get("/topics").text + http.get("/topics/orders/facts").text
        server.close()


def test_a_connector_is_created_changed_without_its_secrets_paused_and_resumed(
    http: httpx.Client, worker: ConnectClient, tmp_path: Path
) -> None:
    (tmp_path / "lines.txt").write_text("a\n")
    settings = f"connector.class=FileStreamSource\nfile={tmp_path / 'lines.txt'}\ntopic=lines\nsasl.password=secret-one"
    settings += "\nproxy=http://ann:secret-two@a.example"
    wrong = http.post(f"{API}/connectors", json={"connector": "made", "settings": "connector.class=NoSuch"})
    assert wrong.status_code >= 400
    created = http.post(f"{API}/connectors", json={"connector": "made", "settings": settings})
    assert created.status_code == 200
    assert "secret-one" not in created.text
    page = http.get("/connectors?name=made").text
    assert "secret-one" not in page
    assert "secret-two" not in page
    shown = page.partition('<textarea name="settings"')[2].partition(">")[2].partition("</textarea>")[0]
    changed = shown.replace("topic=lines", "topic=other")
    plan = http.post(f"{API}/connectors/made/config?dry_run=true", json={"settings": changed}).json()
    assert plan["changes"] == ["topic: lines -> other"]
    assert http.post(f"{API}/connectors/made/config", json={"settings": changed}).status_code == 200
    assert (worker.config("made")["topic"], worker.config("made")["sasl.password"]) == ("other", "secret-one")
    moved = http.post(f"{API}/connectors/made/config", json={"settings": changed.replace("a.example", "b.example")})
    assert moved.status_code >= 400
    assert "proxy has stars where a secret was" in moved.text
    assert worker.config("made")["proxy"] == "http://ann:secret-two@a.example"
    assert http.post(f"{API}/connectors/made/pause", json={}).json()["paused"] is True
    assert "Resume</button>" in http.get("/connectors?name=made").text
    assert http.post(f"{API}/connectors/made/pause", json={"resume": True}).json()["paused"] is False


def test_settings_that_a_form_cannot_show_stay_as_they_are(
    http: httpx.Client, worker: ConnectClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    (tmp_path / "lines.txt").write_text("a\n")
    own = {"note": "SELECT a\nFROM t WHERE b=1", "separator": " ", "source.url": "http://ann:secret-two@host/x"}
    settings = {"connector.class": "FileStreamSource", "file": str(tmp_path / "lines.txt"), "topic": "lines", **own}
    worker.put_config("kept", settings)
    page = http.get("/connectors?name=kept").text
    assert "secret-two" not in page
    shown = html.unescape(page.partition('<textarea name="settings"')[2].partition(">")[2].partition("</textarea>")[0])

    def send(changed: str, query: str = "?dry_run=true") -> httpx.Response:
        return http.post(f"{API}/connectors/kept/config{query}", json={"settings": changed})

    assert send(shown).json()["note"] == "Nothing changes."
    assert send(shown.replace("topic=lines", "topic=other"), "").json()["changes"] == ["topic: lines -> other"]
    assert {name: worker.config("kept")[name] for name in own} == own
    assert send(shown.replace("@host", "@elsewhere")).status_code == 400  # with stars as its password
    assert send(shown.replace("b=1", "b=2")).status_code == 400
    whole = send(shown.replace("ann:***@host", "ann:secret-three@elsewhere").replace(r"\nFROM", " FROM"), "")
    assert whole.status_code == 200
    assert "secret-" not in whole.text
    assert worker.config("kept")["source.url"] == "http://ann:secret-three@elsewhere/x"
    again = http.post(f"{API}/connectors", json={"connector": "kept", "settings": "connector.class=FileStreamSource"})
    assert again.status_code == 409
    assert http.post(f"{API}/connectors/nosuch/config", json={"settings": shown}).status_code == 404
    assert not any("secret-" in each.getMessage() or "\n" in each.getMessage() for each in caplog.records)


def test_a_connector_whose_tasks_have_failed_does_not_run() -> None:
    failed, running = {"id": 0, "state": "FAILED"}, {"id": 1, "state": "RUNNING"}

    def of(*tasks: dict[str, object], state: str = "RUNNING") -> str:
        return ConnectorState("c", "sink", state, "", tasks, {}).whole_state

    assert [of(failed), of(failed, running), of(running), of(), of(failed, state="PAUSED")] == [
        "FAILED", "DEGRADED", "RUNNING", "RUNNING", "PAUSED",
    ]  # fmt: skip


def test_pages_are_packed_and_files_are_sent_once(http: httpx.Client) -> None:
    page = http.get("/topics", headers={"accept-encoding": "gzip"})
    assert page.headers["content-encoding"] == "gzip"
    assert "orders" in page.text
    script = http.get("/static/console.js")
    assert script.headers["cache-control"] == "no-cache"
    again = http.get("/static/console.js", headers={"if-none-match": script.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    with http.stream("GET", "/live", params={"of": "/"}, headers={"accept-encoding": "gzip"}) as events:
        assert "content-encoding" not in events.headers
        assert next(events.iter_lines()).startswith("retry")
