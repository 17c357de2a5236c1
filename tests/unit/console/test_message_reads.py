"""Seeks by time, compacted topics, and values that a registry has the schema of."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from recorded import Recorded, recorded, records

from penstock import Serdes
from penstock.base.clock import unix_ms
from penstock.console.messages import MessageQuery, read_messages
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.log.topic_formats import TopicFormat, note_formats
from penstock.serde.registry import Registry
from penstock.tools.registry_server import server as registry_server

API = "/api/v1/topics"
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "city", "type": "string"}, {"name": "n", "type": "int"}],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with recorded(tmp_path_factory.mktemp("console")) as found:
        yield found


@pytest.fixture(scope="module")
def http(data: Recorded) -> Iterator[httpx.Client]:
    server = ConsoleServer(data.site, ConsoleAddress(port=0, token=None))
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=120) as found:
        yield found
    server.close()


def test_a_time_is_found_in_every_partition_however_it_is_written(http: httpx.Client) -> None:
    rows = http.get(f"{API}/orders/messages", params={"at": "earliest", "limit": 500}).json()["messages"]
    at = sorted(row["timestamp"] for row in rows)[150]
    expected = {(row["partition"], row["offset"]) for row in rows if row["timestamp"] >= at}

    def found(when: Any) -> set[tuple[int, int]]:
        answer = http.get(f"{API}/orders/messages", params={"at": f"time:{when}", "limit": 500}).json()
        return {(row["partition"], row["offset"]) for row in answer["messages"]}

    iso = dt.datetime.fromtimestamp(at / 1000, dt.UTC).isoformat()
    assert len(expected) == 150
    assert found(at) == expected
    assert found(iso) == expected
    assert found(unix_ms() + 3_600_000) == set()
    assert len(found(0)) == 300
    page = http.get("/topics/orders", params={"start": "time", "at": "noon or so"}).text
    assert "noon or so" in page
    assert http.get(f"{API}/orders/messages", params={"at": "time:noon"}).status_code == 400
    assert http.get(f"{API}/orders/messages", params={"at": "offset:x"}).status_code == 400


def test_a_compacted_topic_answers_at_once_with_what_is_left(data: Recorded, http: httpx.Client) -> None:
    settings = {"cleanup.policy": "compact", "delete.retention.ms": "0", "min.cleanable.dirty.ratio": "0"}
    data.log.create_topic("compacted", 1, settings)
    for round_ in range(3):
        data.log.append("compacted", 0, records([(n, f"k{n}", f"v{round_}") for n in range(1000)]))
    log: Any = data.log
    log.compact("compacted", 0, unix_ms() + 86_400_000)
    newest = read_messages(data.log, MessageQuery("compacted", limit=500))
    assert {row["value"] for row in newest.rows} == {"v2"}
    oldest = read_messages(data.log, MessageQuery("compacted", "oldest", limit=500))
    assert [row["offset"] for row in oldest.rows] == list(range(2000, 2500))
    assert oldest.searched >= 2500  # offsets without records count as searched, and are not waited for
    nothing = http.get(f"{API}/compacted/messages", params={"filter": 'value = "v0"', "at": "earliest"}).json()
    assert (nothing["messages"], nothing["searched"], nothing["next"]) == ([], 3000, None)
    assert http.get(f"{API}/compacted/0/5").status_code == 404
    data.log.append("compacted", 0, records([(n, f"k{n}", None) for n in range(1000)]))
    for _ in range(2):
        log.compact("compacted", 0, unix_ms() + 2 * 86_400_000)
    left = http.get(f"{API}/compacted/messages", params={"limit": 500}).json()["messages"]
    assert {row["value"] for row in left} <= {None}


def test_values_are_decoded_by_the_noted_registry_and_are_bytes_with_a_reason_where_it_is_gone(
    data: Recorded, http: httpx.Client, tmp_path: Path
) -> None:
    registry = registry_server(Registry(tmp_path / "registry.db"), port=0)
    registry.start()
    url = f"http://127.0.0.1:{registry.port}"
    try:
        serde = Serdes.avro(ORDER, registry=url).for_topic("cities", "value")
        encoded = [serde.serialize({"city": f"c{n}", "n": n}) for n in range(30)]
        columns = {
            "timestamp": pa.array(range(30), pa.int64()),
            "key": pa.array([b"k"] * 30, pa.large_binary()),
            "value": pa.array(encoded, pa.large_binary()),
        }
        data.log.create_topic("cities", 1)
        data.log.append("cities", 0, pa.RecordBatch.from_pydict(columns))
        note_formats(data.log, "shop", {"cities": TopicFormat("string", "avro", url)})
        found = http.get(f"{API}/cities/messages", params={"at": "earliest", "filter": "value.n >= 28"}).json()
        assert [row["value"] for row in found["messages"]] == [{"city": "c28", "n": 28}, {"city": "c29", "n": 29}]
        assert "c29" in http.get("/topics/cities").text
    finally:
        registry.close()
    began = time.monotonic()
    rows = http.get(f"{API}/cities/messages", params={"limit": 30, "value_serde": "json_schema"}).json()["messages"]
    assert time.monotonic() - began < 60
    assert len(rows) == 30
    assert all(row["problem"] for row in rows)
    assert http.get("/topics/cities", params={"value_format": "nonsense"}).status_code == 200
    assert "nonsense" in http.get("/topics/cities", params={"value_format": "nonsense"}).text
