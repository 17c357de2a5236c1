"""A secret in records, through every way out of a console that hides it: by ``--no-messages``, by ``--mask``."""

from __future__ import annotations

import base64
import inspect
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest
from committed_checkpoint import Checkpoint
from recorded import APPLICATION, Recorded, recorded
from worker_support import loaded, prepared

from penstock import StreamsBuilder
from penstock.base.clock import unix_ms
from penstock.cli.servers.console_sources import SqlServerClient
from penstock.console.applications import OwnApplication
from penstock.console.exposed_application import ExposedQueries
from penstock.console.exposure import HIDDEN, Exposure
from penstock.console.messages import MessageQuery, read_messages
from penstock.console.part_interfaces import ConnectorState
from penstock.console.recorder import Recorder, Watched
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.engines.micro_batches.envelope import Envelope, EnvelopeKind
from penstock.engines.micro_batches.worker.task_attempt import run_task
from penstock.engines.micro_batches.worker.task_batch import TaskBatch
from penstock.engines.spark.progress import batch_progress
from penstock.errors import ConfigError, ProcessingError
from penstock.log.topic_formats import TopicFormat, note_formats
from penstock.query.http.service import QueryService
from penstock.serde import Serdes
from penstock.topology.plan.plan import TaskRun

SECRET = "4111222233334444"
FORMATS = (
    "",
    "string",
    "bytes",
    "auto",
    "json",
    "long",
    "double",
    "uuid",
    "list<string>",
    "windowed<json,1000>",
    "avro",
)
NODE = "KSTREAM-MAPVALUES-0000000001"
TEXT = f"ValueError: bad card {SECRET}"
ORDER = {"card": SECRET, "user": "ann", "items": [{"card": SECRET, "tea": 1}], "nested": {"card": {"number": SECRET}}}
# What holds the secret where the masks of `MASKS` hide it, in every shape that is not parsed into fields too.
VALUES: tuple[bytes, ...] = (
    json.dumps(ORDER).encode(),
    json.dumps([ORDER, ORDER]).encode(),
    json.dumps(json.dumps(ORDER)).encode(),
    json.dumps(ORDER).encode()[:-1],
    json.dumps(ORDER).encode() + b"}",
    b"[" * 600 + SECRET.encode() + b"]" * 600,
    f"card={SECRET}".encode(),
    SECRET.encode(),
    json.dumps(SECRET).encode(),
    json.dumps({"card.number": SECRET, "nested": SECRET, "items": SECRET}).encode(),
    json.dumps({"items": {"card": SECRET}, "card": {"deep": [SECRET]}}).encode(),
    b"\x00\x00\x00\x00\x01" + SECRET.encode(),
    b"\xff\xfe" + json.dumps(ORDER).encode("utf-16-le"),
)  # fmt: skip
MASKS = ("value.card", "value.items.card", "value.nested.card", "value.card.number", "header.auth", "key.card")


@dataclass
class Workers:
    """Connectors of which one has failed, with a record in its trace."""

    url: str = "http://localhost:8083"

    def all(self) -> list[ConnectorState]:
        trace = f"org.apache.kafka.connect.errors.DataException: bad {SECRET}\n\tat X\nCaused by: ValueError: {SECRET}"
        task = {"id": 0, "state": "FAILED", "worker_id": "w", "trace": trace}
        return [ConnectorState("sink", "sink", "FAILED", "w", [task], {"connector.class": "S"}, trace)]

    def topics(self, name: str) -> list[str]:
        return ["cards"] if name else []

    def restart(self, name: str, *, only_failed: bool) -> None:
        raise NotImplementedError(name, only_failed)


def rows(values: tuple[bytes, ...], key: bytes, headers: dict[str, str]) -> pa.RecordBatch:
    now_ms, count = unix_ms(), len(values)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.large_binary())]))
    named = [{"key": name, "value": text.encode()} for name, text in headers.items()]
    return pa.RecordBatch.from_pydict(
        {
            "timestamp": pa.array([now_ms] * count, pa.int64()),
            "key": pa.array([key] * count, pa.large_binary()),
            "value": pa.array(list(values), pa.large_binary()),
            "headers": pa.array([named] * count, kind),
        }
    )


def letter_headers() -> dict[str, str]:
    streams = {"exception": "builtins.ValueError", "message": TEXT, "stacktrace": f"Traceback\n{TEXT}"}
    connect = {"exception.class.name": "x.DataException", "exception.message": TEXT, "exception.stacktrace": TEXT}
    place = {"topic": "cards", "partition": "0", "offset": "1"}
    return {
        **{f"__streams.errors.{name}": text for name, text in {**streams, **place}.items()},
        **{f"__connect.errors.{name}": text for name, text in {**connect, **place}.items()},
    }


def fill(data: Recorded) -> None:
    for name in ("cards", "texts", "unknown"):
        data.log.create_topic(name, 1)
        data.log.append(name, 0, rows(VALUES, json.dumps({"card": SECRET}).encode(), {"auth": SECRET}))
    note_formats(data.log, "shop", {"cards": TopicFormat("json", "json"), "texts": TopicFormat("string", "string")})
    data.log.append("access_log-bad", 0, rows((json.dumps(ORDER).encode(),), b'{"card": "' + SECRET.encode() + b'"}', letter_headers()))  # fmt: skip
    counts = {
        "reasons": [[NODE, "ValueError", 20]], "errors": [[NODE, "ValueError", "continue", 20]],
        "causes": [[NODE, "ValueError", "f", "app.py", 4, 20, [["cards", 0, 1, TEXT]]]],
    }  # fmt: skip
    tasks = [dict(task) for task in data.batch_tasks()]
    tasks[0] = {**tasks[0], "counts": {**tasks[0].get("counts", {}), **counts}}
    data.recorder.failure = failure()
    data.settle(data.batch(tasks=tuple(tasks), dropped=1_000_000))


def failure() -> ProcessingError:
    return ProcessingError(
        f"{NODE}: f (app.py:3) raised {TEXT}, for the record {{'value': '{SECRET}'}}", hint="Repair it.", node=NODE,
        kind="ValueError", function="f", file="app.py", line=3, topic="cards", partition=0, offset=1,
    )  # fmt: skip


@contextmanager
def shown(root: Path, **permissions: Any) -> Iterator[httpx.Client]:
    """A console over all of it."""
    stores = Checkpoint(root / "stores")
    text = json.dumps(ORDER)

    def change(task: int, store: Any) -> None:
        store("plain").put("ann" if task else json.dumps({"card": SECRET}), text)
        store("recent").put("k", SECRET)
        store("versions").put("k", text, 1_790_000_000_000)

    stores.batch(change)
    state = stores.state()
    with recorded(root / "log", state="ERROR", **permissions) as data:
        fill(data)
        own = data.site.applications.get(APPLICATION)
        assert isinstance(own, OwnApplication)
        own.queries = lambda: QueryService(state)
        data.site.connectors, data.site.statements = Workers(), SqlServerClient("http://127.0.0.1:9")
        server = ConsoleServer(data.site, ConsoleAddress(port=0, token=None))
        server.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=30) as http:
            yield http
        server.close()
    state.close()
    stores.close()


def addresses() -> list[str]:
    """Every address that may show something of a record."""
    a = "/api/v1"
    found = ["/", "/topology", f"/topology?node={NODE}", "/batches", "/tasks", "/errors", "/stores", "/groups"]
    found += ["/connectors", "/connectors?name=sink", "/topics", f"{a}/connectors", f"{a}/alerts", f"{a}/health"]
    found += [f"{a}/metrics", f"{a}/apps", f"{a}/sql?sql=SELECT%20*%20FROM%20cards;", f"{a}/sql?sql=PRINT%20cards;"]
    of_app = ("", "/errors", "/top?by=dropped", "/batches", "/tasks", f"/nodes/{NODE}", "/topology", "/stores")
    found += [f"{a}/apps/{APPLICATION}{each}" for each in of_app]
    for store in ("plain", "recent", "versions"):
        found += [f"/stores/{store}", *(f"/stores/{store}?ask=1&by={by}&key=ann" for by in ("all", "key", "prefix"))]
        found += [f"/stores/{store}?ask=1&by=key&key=k", f"/stores/{store}?ask=1&by=versions&key=k"]
        asked = ("range?limit=1", "range?low=a", "keys/ann", "keys/k", "prefix?prefix=a", "versions/k")
        found += [f"{a}/apps/{APPLICATION}/stores/{store}/{each}" for each in asked]
    for topic in ("cards", "texts", "unknown", "access_log-bad"):
        for each in FORMATS:
            more = f"key_format={quote(each)}&value_format={quote(each)}"
            found += [f"/topics/{topic}?{more}", f"{a}/topics/{topic}/messages?{more}"]
            found += [f"{a}/topics/{topic}/messages?{more}&filter={quote(text)}" for text in FINDS]
            for offset in range(2 if topic == "access_log-bad" else len(VALUES)):
                found += [f"/topics/{topic}/0/{offset}?{more}", f"{a}/topics/{topic}/0/{offset}?{more}"]
        found += [f"{a}/topics/{topic}/0/1?raw={side}" for side in ("key", "value")]
    return found


FINDS = (f'value ~ "{SECRET}"', f'value.card = "{SECRET}"', f'key ~ "{SECRET}"', f'header.auth = "{SECRET}"')


def forms(secret: str) -> list[bytes]:
    """The secret as it may leave."""
    raw = secret.encode()
    coded = {base64.b64encode(b"x" * shift + raw)[4 * (shift > 0) : -4] for shift in range(3)}
    return [raw, raw.hex().encode(), *coded]


@pytest.fixture(scope="module", params=["no messages", "masks"])
def hiding(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    how: dict[str, Any] = {"messages": False} if request.param == "no messages" else {"masked": MASKS}
    with shown(tmp_path_factory.mktemp("hidden"), **how) as http:
        yield http


def leaks(http: httpx.Client, path: str) -> list[bytes]:
    answer = http.get(path)
    assert answer.status_code < 500 or "health" in path, (path, answer.text)
    found = answer.content.replace(quote(quote(path)).encode(), b"")
    if "filter=" in path:
        assert not found.startswith(b"{") or json.loads(found).get("messages", []) == [], path
    return [form for form in forms(SECRET) if form in found]


def test_no_address_shows_the_secret(hiding: httpx.Client) -> None:
    assert {path: found for path in addresses() if (found := leaks(hiding, path))} == {}


def test_no_open_page_and_no_event_shows_the_secret(hiding: httpx.Client) -> None:
    pages = [f"/live?of={quote(path)}" for path in ("/", "/errors", "/topics/cards", f"/topology?node={NODE}")]
    for path in (*pages, f"/api/v1/apps/{APPLICATION}/live?seen=0"):
        with hiding.stream("GET", path) as answer:
            seen = 0
            for line in answer.iter_lines():
                assert SECRET not in line, path
                seen += line.startswith("data: ")
                if seen > 0 and line.startswith("data: "):
                    break


def test_without_anything_hidden_the_secret_is_in_many_of_them(tmp_path: Path) -> None:
    with shown(tmp_path) as http:
        several = ("/", "/errors", f"/topology?node={NODE}", "/connectors?name=sink", "/api/v1/alerts",
                   "/topics/cards", "/topics/texts?value_format=string", "/stores/plain?ask=1&by=all",
                   "/topics/cards/0/6", f"/api/v1/apps/{APPLICATION}/errors", "/api/v1/topics/cards/0/1?raw=value",
                   f"/api/v1/apps/{APPLICATION}/stores/plain/keys/ann")  # fmt: skip
        assert [path for path in several if SECRET not in http.get(path).text] == []
        for path in ("/api/v1/metrics",):
            assert SECRET not in http.get(path).text, "a label is the class of an error, not its text"


def test_masks_leave_the_other_fields(tmp_path: Path) -> None:
    with shown(tmp_path, masked=MASKS) as http:
        for topic in ("cards", "texts", "unknown"):
            for each in ("", "string", "bytes", "json"):
                found = http.get(f"/api/v1/topics/{topic}/0/0", params={"value_format": each}).json()
                assert found["value"] == {
                    "card": HIDDEN, "user": "ann", "items": [{"card": HIDDEN, "tea": 1}], "nested": {"card": HIDDEN},
                }  # fmt: skip
        (row, *_) = http.get("/api/v1/topics/cards/messages", params={"filter": 'value.user = "ann"'}).json()[
            "messages"
        ]
        assert (row["key"], dict(row["headers"])["auth"]) == ({"card": HIDDEN}, HIDDEN)
        entries = http.get(f"/api/v1/apps/{APPLICATION}/stores/plain/range").json()["entries"]
        assert {each["key"] if isinstance(each["key"], str) else each["key"]["card"] for each in entries} == {HIDDEN}
        assert [each["value"]["user"] for each in entries] == ["ann", "ann"]
        errors = http.get(f"/api/v1/apps/{APPLICATION}/errors").json()["drops"]
        drop = next(each for each in errors if each["file"] == "app.py" and each["line"] == 4)
        assert (drop["reason"], drop["place"]) == ("ValueError", {"topic": "cards", "partition": 0, "offset": 1})
        failed = next(each for each in http.get("/api/v1/alerts").json() if each["name"] == "failed")
        assert failed["what"] == f"ValueError in {NODE}: f (app.py:3), for the record cards-0 offset 1"
        task = http.get("/api/v1/connectors").json()[0]["tasks"][0]["trace"]
        assert task.startswith("org.apache.kafka.connect.errors.DataException, caused by ValueError")
        assert http.get("/errors").text.count("ValueError") > 1
        refused = http.get("/api/v1/sql", params={"sql": "CREATE STREAM x AS SELECT card AS y FROM cards;"})
        assert (refused.status_code, "hides" in refused.json()["error"]["message"]) == (403, True)


@pytest.mark.parametrize("path", ["card", "values.card", "value.", "value card", "", "offset", "header.a.b", "value.0"])
def test_a_path_that_hides_nothing_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="not a field of messages"):
        Exposure.of(masked=[path])


def test_of_lists_an_index_hides_one_and_a_name_all() -> None:
    one, each = Exposure.of(masked=["value.a[1].b"]), Exposure.of(masked=["value.a.b"])
    value = {"a": [{"b": 1}, {"b": 2}, {"b": 3, "c": 4}]}
    assert one.fields("value", value) == {"a": [{"b": 1}, {"b": HIDDEN}, {"b": 3, "c": 4}]}
    assert each.fields("value", value) == {"a": [{"b": HIDDEN}, {"b": HIDDEN}, {"b": HIDDEN, "c": 4}]}


def test_the_key_in_a_window_is_masked_like_the_key() -> None:
    serde = Serdes.of("windowed<json,1000>")
    from penstock.serde.windowed import Window, Windowed

    data = serde.serialize(Windowed({"card": SECRET, "user": "ann"}, Window(0, 1000)))
    found, _ = Exposure.of(masked=["key.card"]).decoded("key", serde, data)
    assert found == {"key": {"card": HIDDEN, "user": "ann"}, "start": 0, "end": 1000}
    assert Exposure.of(masked=["key.card"]).decoded("key", Serdes.of("windowed<string,1000>"), data)[0]["key"] == {
        "card": HIDDEN, "user": "ann",
    }  # fmt: skip


def test_every_query_passes_through_the_exposure() -> None:
    """A new query of the service is a new way out: it is decided here, or shows no record."""
    without_records = {"about", "close", "health", "key_metadata", "lags", "metadata", "metrics", "metrics_json", "not_fresh",
                       "readiness", "stale", "store", "stores"}  # fmt: skip
    public = {name for name, _ in inspect.getmembers(QueryService, inspect.isfunction) if not name.startswith("_")}
    assert public - set(vars(ExposedQueries)) <= without_records


def cards_that_fail() -> Any:
    builder = StreamsBuilder()

    def parse(value: str) -> str:
        raise ValueError(f"bad card {value}")

    builder.stream("words").map_values(parse).to("out")
    return builder.build()


@pytest.mark.parametrize(
    "hidden", [{}, {"penstock.console.mask": "value.card"}, {"penstock.console.messages": "false"}]
)
def test_an_application_that_hides_records_neither_logs_nor_reports_their_texts(
    tmp_path: Path, hidden: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"processing.exception.handler": "continue", **hidden}
    with (
        prepared(tmp_path, cards_that_fail(), ["words", "out"], **settings) as (data, log),
        caplog.at_level(logging.INFO),
    ):
        log.append("words", 0, rows((SECRET.encode(),) * 3, b"k", {}))
        job = loaded(data)
        inbox = [Envelope(0, 0, EnvelopeKind.RANGE, "0_0_0", "words", 0, "", b"[0, 3]")]
        _, report = run_task(TaskBatch(job, 0, TaskRun(0, 0), 0, inbox))
        progress = batch_progress(0, [report.payload])
    said = [each.getMessage() for each in caplog.records if "dropped 3 records" in each.getMessage()]
    assert len(said) == 1
    assert "ValueError" in said[0]
    assert "words-0 offset 2" in said[0]
    counts = next(task["counts"] for task in progress.tasks if task.get("counts"))
    assert [row[1:] for row in counts["reasons"]] == [["ValueError", 3]], "the reason of a metric is the class"
    assert (SECRET in said[0], SECRET in json.dumps(progress.tasks)) == ((not hidden,) * 2)


@pytest.mark.parametrize("hidden", [{}, {"penstock.console.mask": "value.card"}])
def test_an_error_that_ends_such_an_application_does_not_quote_the_record(
    tmp_path: Path, hidden: dict[str, str]
) -> None:
    with prepared(tmp_path, cards_that_fail(), ["words", "out"], **hidden) as (data, log):
        log.append("words", 0, rows((SECRET.encode(),), b"k", {}))
        inbox = [Envelope(0, 0, EnvelopeKind.RANGE, "0_0_0", "words", 0, "", b"[0, 1]")]
        with pytest.raises(ProcessingError) as caught:
            run_task(TaskBatch(loaded(data), 0, TaskRun(0, 0), 0, inbox))
    assert (SECRET in caught.value.message) == (not hidden)
    assert "raised ValueError" in caught.value.message
    assert "words-0 offset 0" in caught.value.message


def test_what_an_application_records_and_posts_holds_no_text_of_an_error_if_it_hides_records(tmp_path: Path) -> None:
    posted: list[str] = []

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["content-length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *said: object) -> None:
            pass

    hook = HTTPServer(("127.0.0.1", 0), Webhook)
    hook.timeout = 20
    url = f"http://127.0.0.1:{hook.server_port}/"
    recorder = Recorder("a", lambda: "ERROR", url, exposure=Exposure.of(masked=["value.card"]))
    recorder.failure = failure()
    recorder.begin(Watched(str(tmp_path), tuple, dict, {}, dict))
    recorder.close()
    hook.handle_request()
    hook.server_close()
    assert "app.py:3" in posted[0]
    written = "".join(path.read_text() for path in tmp_path.rglob("*.json"))
    assert "app.py:3" in written
    assert SECRET not in written + posted[0]


def test_filters_see_what_is_shown(tmp_path: Path) -> None:
    with recorded(tmp_path) as data:
        data.log.create_topic("cards", 1)
        data.log.append("cards", 0, rows(VALUES, b"k", {}))
        for each in ("", "string", "bytes", "json", "auto"):
            query = MessageQuery("cards", value_format=each, masked=MASKS)
            for wanted in (f'value ~ "{SECRET}"', f'value.card ~ "{SECRET[:3]}"', "value.card > 1"):
                assert read_messages(data.log, replace(query, wanted=wanted)).rows == []
        open_one = MessageQuery("cards", wanted=f'value ~ "{SECRET}"', value_format="string")
        assert len(read_messages(data.log, open_one).rows) > 5
