"""From a dropped record, and from a dead letter, to the record in its topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from recorded import APPLICATION, Recorded, recorded, records
from worker_support import loaded, prepared

from eventually import eventually
from penstock import Materialized, StreamsBuilder
from penstock.console.error_groups import ErrorGroups
from penstock.console.messages import MessageQuery, one_message
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.engines.micro_batches.envelope import Envelope, EnvelopeKind
from penstock.engines.micro_batches.worker.task_attempt import run_task
from penstock.engines.micro_batches.worker.task_batch import TaskBatch
from penstock.engines.spark.progress import batch_progress
from penstock.errors import AppFailedError, PenstockError, ProcessingError
from penstock.log.base import TopicPartition
from penstock.topology.plan.plan import TaskRun

LETTERS = "access_log-bad"


def lengths(value: str) -> str:
    if len(value) % 2 == 0:
        raise ValueError(f"{value} has an even length")  # EVEN
    if value.startswith("s"):
        return value[: int(value)]  # NUMBER
    return value


def line_of(mark: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(n for n, text in enumerate(lines, 1) if text.endswith(f"  # {mark}"))


def dropping() -> Any:
    builder = StreamsBuilder()
    builder.stream("words").map_values(lengths).group_by_key().count(Materialized("counts"))
    return builder.build()


def test_errors_are_grouped_by_class_node_and_line_and_their_records_lead_to_messages(tmp_path: Path) -> None:
    settings = {"processing.exception.handler": "continue", "errors.dead.letter.queue.topic.name": "letters"}
    with prepared(tmp_path, dropping(), ["words", "letters"], **settings) as (data, log):
        words = [
            ("a", "one"),
            ("b", "four"),
            (None, "never"),
            ("c", "by"),
            ("d", "seven"),
            (None, "three"),
            ("e", "no"),
        ]
        log.append("words", 0, records([(n, key, value) for n, (key, value) in enumerate(words)]))
        job = loaded(data)
        inbox = [Envelope(0, 0, EnvelopeKind.RANGE, "0_0_0", "words", 0, "", f"[0, {len(words)}]".encode())]
        _, report = run_task(TaskBatch(job, 0, TaskRun(0, 0), 0, inbox))
        groups = ErrorGroups()
        groups.add_batch(batch_progress(0, [report.payload]), 1_000)
        found = {(each["kind"], each["line"]): each for each in groups.rows(1_000)}
        even, number = ("ValueError", line_of("EVEN")), ("ValueError", line_of("NUMBER"))
        assert {at: each["records"] for at, each in found.items()} == {("null key or value", 0): 2, even: 3, number: 1}
        assert {(each["function"], Path(each["file"]).name) for at, each in found.items() if at[1]} == {
            ("lengths", Path(__file__).name)
        }
        examples = found[even]["examples"]
        assert [each["said"] for each in examples] == [f"{word} has an even length" for word in ("four", "by", "no")]
        assert [(each["topic"], each["partition"], each["offset"]) for each in examples] == [
            ("words", 0, 1), ("words", 0, 3), ("words", 0, 6),
        ]  # fmt: skip
        assert found["null key or value", 0]["examples"][0]["offset"] == 5
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


NODE = "KSTREAM-MAPVALUES-0000000001"
SAID = "bad card 4111222233334444"
SHUFFLED = "os-counts-repartition"  # of the topology, in a drawing that knows no plan


def failed(topic: str, offset: int = 7) -> ProcessingError:
    return ProcessingError(
        f"{NODE}: parse (/srv/app.py:3) raised ValueError: {SAID}, for the record {{'value': '{SAID}'}}",
        hint="Repair the function.", node=NODE, kind="ValueError", function="parse", file="/srv/app.py", line=3,
        raised=["card_of", "/srv/cards.py", 61], said=SAID, task="0_2", topic=topic, partition=1, offset=offset,
    )  # fmt: skip


@contextmanager
def ended_by(root: Path, error: PenstockError, **permissions: Any) -> Iterator[tuple[httpx.Client, Recorded]]:
    """A console of an application that an error has ended."""
    with recorded(root, state="ERROR", **permissions) as data:
        data.recorder.failure = error
        data.settle(data.batch())
        server = ConsoleServer(data.site, ConsoleAddress(port=0, token=None))
        server.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=120) as http:
            eventually(lambda: http.get(f"/api/v1/apps/{APPLICATION}").json()["failure"])
            yield http, data
        server.close()


def panel(http: httpx.Client, path: str) -> str:
    """What a page says of the error that has ended the application."""
    return http.get(path).text.partition('id="failure"')[2].partition("</section>")[0]


def test_a_failed_application_names_the_record_with_a_link_the_task_the_node_and_the_line(tmp_path: Path) -> None:
    with ended_by(tmp_path, failed("orders")) as (http, _):
        for path in ("/", "/errors"):
            shown = panel(http, path)
            assert '<a href="/topics/orders/1/7">orders-1 offset 7</a>' in shown
            assert f'<a href="/topology?node={NODE}">{NODE}</a>' in shown
            assert "card_of (cards.py:61)" in shown
            assert "in the function parse (/srv/app.py:3)" in shown
            assert ">0_2<" in shown.replace("<td>", ">")
            assert SAID in shown
        assert http.get("/topics/orders/1/7").status_code == 200
        found = http.get(f"/api/v1/apps/{APPLICATION}").json()["failure"]
        assert found["record"] == {"topic": "orders", "partition": 1, "offset": 7}
        assert (found["task"], found["node"], found["file"], found["line"]) == ("0_2", NODE, "/srv/cards.py", 61)
        (group,) = [each for each in http.get(f"/api/v1/apps/{APPLICATION}/errors").json()["drops"] if each["ended"]]
        assert (group["file"], group["line"], group["place"]["offset"]) == ("/srv/cards.py", 61, 7)


@pytest.mark.parametrize(
    ("permissions", "is_linked"), [({"messages": False}, False), ({"masked": ("value.card",)}, True)]
)
def test_what_hides_records_hides_the_text_of_the_failure(
    tmp_path: Path, permissions: dict[str, Any], is_linked: bool
) -> None:
    with ended_by(tmp_path, failed("orders"), **permissions) as (http, _):
        for path in ("/", "/errors", f"/topology?node={NODE}"):
            assert SAID not in http.get(path).text
        for path in ("/", "/errors"):
            assert "orders-1 offset 7" in panel(http, path)
            assert "card_of (cards.py:61)" in panel(http, path)
            assert ("/topics/orders/1/7" in http.get(path).text) == is_linked
        for path in (f"/api/v1/apps/{APPLICATION}", f"/api/v1/apps/{APPLICATION}/errors"):
            assert SAID not in http.get(path).text
            assert '"offset": 7' in http.get(path).text


def test_a_process_that_ended_leads_to_where_its_task_was_to_read(tmp_path: Path) -> None:
    error = AppFailedError(
        "a worker process ended abruptly while it ran task 0_1",
        task="0_1",
        batch=4,
        positions={"orders-1": 60, "gone-0": 3},
    )
    with ended_by(tmp_path, error) as (http, _):
        shown = panel(http, "/")
        assert '<a href="/topics/orders/1/60">orders-1 offset 60</a>' in shown
        assert "gone-0 offset 3" in shown
        assert "/topics/gone" not in shown
        assert "0_1, batch 4" in shown


def test_no_page_links_a_topic_that_is_not_the_applications(tmp_path: Path) -> None:
    """Micro-batches have no internal topics; one of that name may be left of continuous mode."""
    import html
    import re
    from urllib.parse import unquote_plus

    with ended_by(tmp_path, failed(SHUFFLED)) as (http, data):
        data.log.create_topic(SHUFFLED, 4)
        data.log.create_topic("os-check-gone", 1)
        data.log.commit_offsets("audit", {TopicPartition("os-check-gone", 0): 0})
        for topic in (SHUFFLED, "os-check-gone"):
            data.reject(topic, 0, 2, "null key")
        tasks = data.batch_tasks()
        tasks[0] = {**tasks[0], "counts": {"causes": [["a store", "too old for the store", "", "", 0, 1, []]]}}
        data.settle(data.batch(tasks=tuple(tasks)))
        data.log.delete_topic("os-check-gone")
        letters = len(http.get(f"/api/v1/topics/{LETTERS}/messages").json()["messages"])
        pages = ["/", "/errors", "/topology", "/batches", "/tasks", "/groups", "/groups/audit", "/stores"]
        pages += [f"/topics/{LETTERS}", *(f"/topics/{LETTERS}/0/{number}" for number in range(letters))]
        linked: set[str] = set()
        for page in pages:
            text = http.get(page).text
            linked |= set(re.findall(r'href="/topics/([^/?"]+)', text))
            graph = re.findall(r"&#34;target&#34;: ?&#34;([^&]*)&#34;", text)
            linked |= {each for each in graph if each}
        assert letters == 3
        assert f"{SHUFFLED}-0 @ 2" in http.get("/errors").text
        assert {"access_log", "orders", LETTERS} <= linked | {"orders"}
        assert linked.isdisjoint({SHUFFLED, "os-check-gone"})
        errors = http.get("/errors").text
        nodes = {html.unescape(unquote_plus(each)) for each in re.findall(r'href="/topology\?node=([^"]+)"', errors)}
        assert "a store" in errors
        assert NODE in nodes
        for node in nodes:
            assert "The topology has no node" not in http.get("/topology", params={"node": node}).text, node
        for topic in linked:
            assert http.get(f"/topics/{topic}").status_code == 200, topic


def test_a_page_of_ten_thousand_texts_and_classes_is_small(tmp_path: Path) -> None:
    with recorded(tmp_path) as data:
        tasks, number = data.batch_tasks(), 0
        for first in range(0, 10_000, 100):
            causes = [
                [NODE, "ValueError", "card_of", "/srv/cards.py", 61, 1, [["orders", 1, n, f"{n} " + "x" * 2_000]]]
                for n in range(first, first + 100)
            ] + [
                [NODE, f"Error{n}", "f", "/srv/app.py", n, 1, [["orders", 1, n, "x" * 2_000]]]
                for n in range(first, first + 100)
            ]
            tasks[0] = {**tasks[0], "counts": {"causes": causes}}
            number = data.batch(tasks=tuple(tasks))
        data.settle(number)
        server = ConsoleServer(data.site, ConsoleAddress(port=0, token=None))
        server.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=120) as http:
            page = http.get("/errors").text
            drops = http.get(f"/api/v1/apps/{APPLICATION}/errors").json()["drops"]
        server.close()
        assert len(page) < 300_000
        assert page.count("<tr data-key=") <= 50 + 20
        (one,) = [each for each in drops if each["line"] == 61]
        assert one["records"] == 10_000
        assert sum(each["records"] for each in drops if each["kind"] == "other reasons") > 9_000
