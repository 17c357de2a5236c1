"""From a dropped record, and from a dead letter, to the record in its topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from recorded import APPLICATION, Recorded, recorded, records
from worker_support import loaded, prepared

from penstock import Materialized, StreamsBuilder
from penstock.console.app_view import Picture
from penstock.console.messages import MessageQuery, one_message
from penstock.console.totals import Totals
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.engines.batches.envelope import Envelope, EnvelopeKind
from penstock.engines.batches.worker.exactly_once import run_task
from penstock.engines.batches.worker.task_batch import TaskBatch
from penstock.engines.spark.progress import batch_progress
from penstock.topology.plan.plan import TaskRun

LETTERS = "access_log-bad"


def no_even_lengths(value: str) -> str:
    if len(value) % 2 == 0:
        raise ValueError("an even length")
    return value


def dropping() -> Any:
    builder = StreamsBuilder()
    builder.stream("words").map_values(no_even_lengths).group_by_key().count(Materialized("counts"))
    return builder.build()


def test_the_newest_dropped_record_of_each_reason_leads_to_its_message(tmp_path: Path) -> None:

    settings = {"processing.exception.handler": "continue", "errors.dead.letter.queue.topic.name": "letters"}
    with prepared(tmp_path, dropping(), ["words", "letters"], **settings) as (data, log):
        words = [("a", "one"), ("b", "four"), (None, "seven"), ("c", "by"), ("d", "odd"), (None, "three")]
        log.append("words", 0, records([(n, key, value) for n, (key, value) in enumerate(words)]))
        job = loaded(data)
        inbox = [Envelope(0, 0, EnvelopeKind.RANGE, "0_0_0", "words", 0, "", f"[0, {len(words)}]".encode())]
        _, report = run_task(TaskBatch(job, 0, TaskRun(0, 0), 0, inbox))
        totals = Totals()
        totals.add(batch_progress(0, [report.payload]), 1_000)
        drops = {each.reason: each for each in Picture(totals.document(1_000)).drops}
        assert drops["null key or value"].records == 2
        assert drops["null key or value"].place == ("words", 0, 5)
        assert drops["ValueError: an even length"].place == ("words", 0, 3)
        dropped = one_message(log, MessageQuery("words"), 0, 3)
        assert dropped is not None
        assert dropped["value"] == "by"
        letter = one_message(log, MessageQuery("letters"), 0, 1)
        assert letter is not None
        assert letter["original"] == ("words", 0, 3)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with recorded(tmp_path_factory.mktemp("console")) as found:
        found.batch()
        yield found


@pytest.fixture(scope="module")
def http(data: Recorded) -> Iterator[httpx.Client]:
    server = ConsoleServer(data.site, ConsoleAddress(port=0, token=None))
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=120) as found:
        yield found
    server.close()


def test_the_page_of_errors_links_records_and_dead_letters(http: httpx.Client, data: Recorded) -> None:
    data.reject("orders", 1, 7, "null key")
    page = http.get("/errors").text
    assert 'href="/topics/orders/1/7"' in page
    assert f'href="/topics/{LETTERS}/0/1"' in page
    assert "ValueError: an even length" in page
    assert 'href="/topics/orders/1/7"' in http.get(f"/topics/{LETTERS}/0/1").text
    found = http.get(f"/api/v1/topics/{LETTERS}/0/1").json()
    assert found["original"] == {"topic": "orders", "partition": 1, "offset": 7}
    drops = http.get(f"/api/v1/apps/{APPLICATION}/errors").json()["drops"]
    assert {"topic": "orders", "partition": 1, "offset": 7} in [each["place"] for each in drops]


def test_links_lead_only_to_topics_that_are_there(http: httpx.Client, data: Recorded) -> None:
    """The repartition topic of micro-batches is in no log."""
    import html
    import json
    import re

    data.log.delete_topic("os-check-os-counts-repartition")
    page = http.get("/topology").text
    graph = json.loads(html.unescape(re.search(r'data-graph="([^"]*)"', page)[1]))  # type: ignore[index]
    targets = {box["name"]: box["target"] for box in graph["boxes"] if box["kind"] == "topic"}
    assert targets["access_log"] == "access_log"
    assert {target for name, target in targets.items() if "repartition" in name} == {""}
