"""Messages found by text and key, whole messages as trees and bytes, files, and lists past their limits."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from recorded import Recorded, recorded, records

from penstock.console import group_watch
from penstock.console import request_limits as limits
from penstock.console.messages import MessageQuery, neighbours, read_messages
from penstock.console.producing import TextProducer
from penstock.console.web.pages import log_pages
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.errors import ConfigError
from penstock.log.base import HEADERS_TYPE, TopicLog, TopicPartition
from penstock.log.partitioner import partition_for

API = "/api/v1/topics"
TRACE = "Traceback:\n  File \x1b[31mshop.py, line 4"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with recorded(tmp_path_factory.mktemp("console")) as found:
        fill(found.log)
        yield found


def fill(log: TopicLog) -> None:
    """Write orders to the partitions of their keys, and one record with headers."""
    log.create_topic("by-key", 8)
    producer = TextProducer(log, "by-key", "string", "string")
    for n in range(400):
        producer.add(f"u{n % 40}", json.dumps({"id": n, "note": ["=1+1", "plain"][n % 2]}), 1_790_000_000_000 + n)
    producer.flush()
    log.create_topic("with-headers", 1)
    headers = [{"key": "trace-id", "value": b"abc-77"}, {"key": "stacktrace", "value": TRACE.encode()}]
    row = records([(1, "k", "v")]).append_column("headers", pa.array([headers], HEADERS_TYPE))
    log.append("with-headers", 0, records([(0, "a", "b")] * 3).append_column("headers", pa.nulls(3, HEADERS_TYPE)))
    log.append("with-headers", 0, row)


@pytest.fixture(scope="module")
def http(data: Recorded) -> Iterator[httpx.Client]:
    server = ConsoleServer(data.site, ConsoleAddress(port=0, token=None))
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=120) as found:
        yield found
    server.close()


def found_by(http: httpx.Client, topic: str, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = http.get(f"{API}/{topic}/messages", params={"at": "earliest", **query}).json()
    return found


def test_a_text_is_found_in_keys_values_and_headers(http: httpx.Client) -> None:
    assert [each["value"]["id"] for each in found_by(http, "orders", text='"id": 29,')["messages"]] == [29]
    assert {each["key"] for each in found_by(http, "by-key", text="u39")["messages"]} == {"u39"}
    assert [each["offset"] for each in found_by(http, "with-headers", text="abc-77")["messages"]] == [3]
    both = found_by(http, "by-key", text="u39", filter="value.id > 200")["messages"]
    assert [json.loads(each["value"])["id"] for each in both] == [239, 279, 319, 359, 399]
    assert found_by(http, "by-key", text="nowhere")["messages"] == []


def test_a_key_is_looked_for_in_its_partition_alone_or_in_all(http: httpx.Client, data: Recorded) -> None:
    found = found_by(http, "by-key", key="u7")
    assert len(found["messages"]) == 10
    assert {each["partition"] for each in found["messages"]} == {partition_for(b"u7", 8)}
    assert found["total"] < 400
    assert found_by(http, "by-key", key="u7", partition="all")["total"] == 400
    page = http.get("/topics/by-key", params={"start": "oldest", "key": "u7"}).text
    assert f"in partition {partition_for(b'u7', 8)}, where its key belongs" in page
    with pytest.raises(ConfigError, match="keys are hidden"):
        read_messages(data.log, MessageQuery("by-key", masked=("key",), key="u7"))
    assert read_messages(data.log, MessageQuery("by-key", masked=("key",), text="u7")).rows == []


def test_a_message_has_its_neighbours_tree_bytes_and_trace_with_lines(http: httpx.Client, data: Recorded) -> None:
    page = http.get("/topics/orders/0/1").text
    assert '<ul class="tree"><li><b>id</b> <code>3</code>' in page
    assert "00000000  7b 22 69 64 22" in page
    assert 'href="/topics/orders/0/0"' in page
    assert 'href="/topics/orders/0/2"' in page
    assert 'aria-disabled="true">Previous' in http.get("/topics/orders/0/0").text
    assert neighbours(data.log, "orders", 0, 99) == (98, None)
    trace = http.get("/topics/with-headers/0/3").text
    assert "Traceback:\n  File \\x1b[31mshop.py, line 4" in trace


def test_hidden_fields_are_neither_in_the_tree_nor_in_the_bytes(tmp_path: Path) -> None:
    with recorded(tmp_path, masked=("value.user",)) as data:
        server = ConsoleServer(data.site, ConsoleAddress(port=0, token=None))
        server.start()
        url = f"http://127.0.0.1:{server.port}"
        page = httpx.get(f"{url}/topics/orders/0/1", trust_env=False, timeout=60).text
        whole = httpx.get(f"{url}{API}/orders/export?text=u3", trust_env=False, timeout=60).text
        server.close()
    assert "(hidden)" in page
    assert 'id="value-hex"' not in page
    assert "u3" not in json.dumps([json.loads(line)["value"] for line in whole.splitlines()])


def test_a_search_is_exported_whole_as_json_and_csv(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = http.get(f"{API}/by-key/export", params={"start": "oldest", "text": "plain", "format": "json"})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert (len(lines), answer.headers["x-complete"]) == (200, "true")
    assert answer.headers["content-disposition"] == 'attachment; filename="by-key.jsonl"'
    table = http.get(f"{API}/by-key/export", params={"format": "csv", "key": "u2", "start": "oldest"}).text
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [json.loads(each["value"])["id"] for each in rows] == list(range(2, 400, 40))
    monkeypatch.setattr("penstock.console.web.api.topic_endpoints._EXPORTED", 30)
    part = http.get(f"{API}/by-key/export", params={"start": "oldest"})
    assert (len(part.text.splitlines()), part.headers["x-complete"]) == (30, "false")
    assert http.get(f"{API}/by-key/export", params={"format": "xml"}).status_code == 400


def test_an_export_of_many_parts_is_one_file_and_few_run_at_a_time(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.console.web.api.topic_endpoints._PART", 7)
    monkeypatch.setattr(limits, "_TURN_S", 0.0)
    table = http.get(f"{API}/by-key/export", params={"format": "csv", "start": "oldest", "text": "plain"})
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert sorted(json.loads(each["value"])["id"] for each in rows) == list(range(1, 400, 2))
    assert table.headers["x-complete"] == "true"
    with limits.exporting(), limits.exporting():
        refused = http.get(f"{API}/by-key/export", params={"start": "oldest"})
    assert refused.status_code == 503
    assert http.get(f"{API}/by-key/export", params={"start": "oldest"}).status_code == 200


def test_cells_of_a_csv_file_are_no_formulas(http: httpx.Client, data: Recorded) -> None:
    data.log.create_topic("formulas", 1)
    data.log.append("formulas", 0, records([(0, "=cmd|' /C calc'!A0", "-3"), (0, None, "a,b\nc")]))
    rows = list(csv.DictReader(io.StringIO(http.get(f"{API}/formulas/export?format=csv&start=oldest").text)))
    assert [(row["key"], row["value"]) for row in rows] == [("'=cmd|' /C calc'!A0", "'-3"), ("", "a,b\nc")]


def test_topics_and_groups_past_the_limits_are_found(
    http: httpx.Client, data: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_pages, "_MOST_TOPICS", 2)
    monkeypatch.setattr(group_watch, "_MOST_GROUPS", 1)
    for n in range(3):
        data.log.commit_offsets(f"zz-{n}", {TopicPartition("orders", 0): 1})
    names = {each["name"] for each in http.get("/api/v1/topics").json()}
    assert len(names) == 2
    assert "with-headers" not in names
    assert "2 shown" in http.get("/topics").text
    assert [each["name"] for each in http.get("/api/v1/topics?find=WITH-head").json()] == ["with-headers"]
    assert [each["group"] for each in http.get("/api/v1/groups?find=zz-2").json()] == ["zz-2"]
    assert "No topic is named so" in http.get("/topics?find=nosuch").text
