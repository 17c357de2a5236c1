"""Records of a megabyte: what one request reads and answers stays bounded, and what is cut is there on demand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import httpx
import pyarrow as pa
import pytest
from recorded import Recorded, recorded

from penstock.console import messages
from penstock.console import request_limits as limits
from penstock.console.messages import MessageQuery, read_messages
from penstock.console.request_limits import PIECE_BYTES, REQUEST_BYTES, Piece
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.errors import PenstockError
from penstock.log.base import TopicLog

MEGABYTE = 1 << 20
TEXT = MEGABYTE - 200  # which its own page shows whole
COUNT = 90
API = "/api/v1/topics/large"


def large(first: int, count: int) -> pa.RecordBatch:
    values = [json.dumps({"n": n, "text": "x" * TEXT}) for n in range(first, first + count)]
    columns = {
        "timestamp": pa.array(range(first, first + count), pa.int64()),
        "key": pa.array([b"k%d" % n for n in range(first, first + count)], pa.large_binary()),
        "value": pa.array([value.encode() for value in values], pa.large_binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with recorded(tmp_path_factory.mktemp("console")) as found:
        found.log.create_topic("large", 2)
        for first in range(0, COUNT, 10):
            found.log.append("large", first // 10 % 2, large(first, 10))
        yield found


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are the limit here, however busy the machine is."""
    monkeypatch.setattr(messages, "_SECONDS", 60.0)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[Piece]:
    """All pieces that are read."""
    read, found = limits.piece_from, list[Piece]()

    def noted(*given: Any) -> Piece:
        found.append(read(*given))
        return found[-1]

    monkeypatch.setattr(limits, "piece_from", noted)
    monkeypatch.setattr(messages, "piece_from", noted)
    return found


def query(**changes: Any) -> MessageQuery:
    return replace(MessageQuery("large", value_format="json"), **changes)


@pytest.mark.parametrize(
    ("start", "wanted"), [("newest", ""), pytest.param("oldest", "value.n >= 0", marks=pytest.mark.whole)]
)
def test_requests_read_a_bounded_part_and_go_on_until_each_message_was_shown_once(
    data: Recorded, pieces: list[Piece], start: str, wanted: str
) -> None:
    asked, seen = query(start=start, wanted=wanted, limit=500), list[int]()
    for _ in range(50):
        pieces.clear()
        found = read_messages(data.log, asked)
        assert sum(piece.size for piece in pieces) <= REQUEST_BYTES + 4 * PIECE_BYTES
        assert max(piece.size for piece in pieces) <= 2 * PIECE_BYTES  # stored batches are read whole
        seen += [int(row["key"][1:]) for row in found.rows]
        if not found.cursor:
            break
        asked = replace(asked, cursor=found.cursor)
    assert sorted(seen) == list(range(COUNT))


def test_a_list_has_the_beginnings_of_values_and_the_pages_of_messages_the_rest(data: Recorded) -> None:
    server = ConsoleServer(data.site, ConsoleAddress(port=0, token=None))
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=60) as http:
        listed = http.get(f"{API}/messages", params={"value_serde": "json"})
        rows = listed.json()["messages"]
        assert 40 <= len(rows) <= 50
        assert len(listed.content) < 500_000
        assert all(row["is_cut"] and row["bytes"] > TEXT for row in rows)
        page = http.get("/topics/large", params={"value_format": "json"})
        assert len(page.content) < 500_000
        assert 40 <= page.text.count(">whole</a>") <= 50
        whole = http.get(f"{API}/0/3", params={"value_serde": "json"}).json()
        assert (whole["value"]["n"], len(whole["value"]["text"]), whole["is_cut"]) == (3, TEXT, False)
        assert len(http.get(f"{API}/0/3", params={"raw": "value"}).content) > TEXT
    server.close()


def test_what_is_larger_than_a_page_is_cut_there_and_what_is_larger_than_a_file_is_refused(
    data: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "SHOWN_CHARACTERS", 1000)
    monkeypatch.setattr(limits, "FILE_BYTES", TEXT)
    server = ConsoleServer(data.site, ConsoleAddress(port=0, token=None))
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=60) as http:
        assert "Only the beginning is shown" in http.get("/topics/large/0/3?value_format=json").text
        refused = http.get(f"{API}/0/3", params={"raw": "value"})
        assert refused.status_code == 413
        assert "penstock topics consume" in refused.json()["error"]["hint"]
        assert http.get(f"{API}/0/3", params={"raw": "key"}).content == b"k3"
    server.close()


def test_few_requests_read_at_a_time_and_one_that_waits_too_long_is_refused(
    data: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "_TURN_S", 0.1)
    with ExitStack() as turns:
        for _ in range(limits.READS):
            turns.enter_context(limits.reading())
        with pytest.raises(PenstockError, match="too many searches") as refused:
            read_messages(data.log, query())
        assert refused.value.facts["status"] == 503
    assert read_messages(data.log, query(limit=1)).rows


def test_headers_of_a_list_are_bounded_too(data: Recorded) -> None:
    log: TopicLog = data.log
    log.create_topic("headed", 1)
    headers = [{"key": f"h{n}", "value": b"x" * 10_000} for n in range(300)]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.large_binary())]))
    columns = {
        "timestamp": pa.array([1], pa.int64()),
        "key": pa.array([b"k"], pa.large_binary()),
        "value": pa.array([b"v"], pa.large_binary()),
        "headers": pa.array([headers], kind),
    }
    log.append("headed", 0, pa.RecordBatch.from_pydict(columns))
    (row,) = read_messages(log, MessageQuery("headed")).rows
    assert len(row["headers"]) == limits.HEADERS
    assert row["headers_left_out"] == 200
    assert len(row["headers"][0][1]) == limits.CELL_CHARACTERS
