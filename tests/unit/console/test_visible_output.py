"""Hostile text through every way out: no control character, mark of direction or half character leaves raw."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import logging
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest
from committed_checkpoint import Checkpoint
from recorded import APPLICATION, recorded
from worker_support import loaded, prepared

from penstock import StreamsBuilder
from penstock.base.clock import unix_ms
from penstock.base.escapes import json_text, one_line, visible
from penstock.base.log_lines import JsonLines, json_line_of, own_logger
from penstock.base.terminal.html import facts_html, table_html
from penstock.base.terminal.live import Screen
from penstock.cli import output
from penstock.cli.application.metrics import _table
from penstock.cli.main import main
from penstock.cli.sql.render import ResultRenderer
from penstock.connect.rest.json_bodies import RestAnswer
from penstock.console.alerts import alert_lines
from penstock.console.applications import OwnApplication
from penstock.console.part_interfaces import ConnectorState
from penstock.console.recorded_metrics import recorded_metrics
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.engines.micro_batches.envelope import Envelope, EnvelopeKind
from penstock.engines.micro_batches.worker.task_attempt import run_task
from penstock.engines.micro_batches.worker.task_batch import TaskBatch
from penstock.errors import ProcessingError
from penstock.log.base import TopicPartition
from penstock.log.open import open_log
from penstock.log.topic_formats import TopicFormat, note_formats
from penstock.metrics import MetricName, MetricRegistry, RecordingLevel, prometheus_text
from penstock.query.http.server import QueryServer
from penstock.query.http.service import QueryService
from penstock.serde.registry import Registry
from penstock.sql.results import Rows, Status
from penstock.tools.registry_server import server as registry_server
from penstock.topology.plan.plan import TaskRun

HOSTILE = (
    "\x1b[31mred\x1b]0;title\x07\x9b1m\x9d0;t\x9c\u202egpj\u2066\u2069\u200e\u200f\u061c\u2028\u2029\r\n"
    "2026-11-25 ERROR penstock: forged\x00\x08\x7f\x85[bold red]x[/] :smile: {0} %s"
)
HALF = HOSTILE + "\ud800"
RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)  # all but tabs and line ends
NODE = "KSTREAM-MAPVALUES-0000000001"


def assert_visible(text: str, *, in_log: bool = False) -> None:
    assert (found := RAW.search(text)) is None, f"{found[0]!r} at {text[max(0, found.start() - 60) : found.end()]!r}"
    assert not (in_log and re.search(r"^2026-11-25 ERROR penstock: forged", text, re.MULTILINE)), "a line is forged"


def batch(keys: list[bytes], values: list[bytes], headers: dict[str, str] | None = None) -> pa.RecordBatch:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.large_binary())]))
    named = [{"key": name, "value": text.encode()} for name, text in (headers or {}).items()]
    return pa.RecordBatch.from_pydict(
        {
            "timestamp": pa.array([unix_ms()] * len(keys), pa.int64()),
            "key": pa.array(keys, pa.large_binary()),
            "value": pa.array(values, pa.large_binary()),
            "headers": pa.array([named] * len(keys), kind),
        }
    )


# The functions


@pytest.mark.parametrize("text", [HALF, "", "plain", "caf\u00e9 \u65e5\u672c \U0001f600", "a\tb"])
def test_json_keeps_the_value_and_the_others_escape_it(text: str) -> None:
    assert json.loads(json_text({"a": text})) == {"a": text}
    for found in (json_text([text], indent=2), visible(text), one_line(text)):
        assert_visible(found)
        found.encode()
    assert "\n" not in one_line(text)
    assert visible("caf\u00e9 \u65e5\u672c \U0001f600 a\tb\n") == "caf\u00e9 \u65e5\u672c \U0001f600 a\tb\n"


# Logs


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What a program's own handler writes."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("2026-11-25 %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    yield written
    root.removeHandler(handler)


def test_a_line_of_the_log_has_its_escapes_whatever_the_handler(lines: io.StringIO) -> None:
    log = own_logger("another.test")
    log.warning("it is %s", HALF)
    log.warning("it is %(a)s of %(b)d", {"a": HOSTILE, "b": 3})
    log.warning("%r of %s", HOSTILE, ValueError(HOSTILE))
    log.warning(HOSTILE.replace("\r\n", " "))
    try:
        int(HOSTILE.replace("x", "y"))
    except ValueError as error:
        log.exception("%s failed", "it", exc_info=ValueError(HOSTILE).with_traceback(error.__traceback__))
    text = lines.getvalue()
    assert_visible(text, in_log=True)
    assert "\\x1b[31mred" in text
    assert "ValueError: \\x1b[31m" in text


def test_a_json_line_has_its_escapes() -> None:
    record = logging.makeLogRecord({"name": "a", "msg": HALF, "levelname": "INFO", "extra": HALF, "args": ()})
    for text in (JsonLines().format(record), json_line_of(HOSTILE, "spark"), json_line_of(json.dumps({"message": HOSTILE, "level": "INFO", "application": "a"}, ensure_ascii=False), "x")):  # fmt: skip
        assert_visible(text)
        assert "\n" not in text
        assert "red" in json.loads(text)["message"]


def failing() -> Any:
    builder = StreamsBuilder()

    def fail(value: str) -> str:
        raise ValueError(f"no {value}")

    builder.stream("words").map_values(fail).to("out")
    return builder.build()


@pytest.mark.parametrize("how", ["continue", "fail"])
def test_a_dropped_record_and_an_error_are_visible(tmp_path: Path, how: str, lines: io.StringIO) -> None:
    with prepared(tmp_path, failing(), ["words", "out"], **{"processing.exception.handler": how}) as (data, log):
        log.append("words", 0, batch([b"k"], [HOSTILE.encode()]))
        inbox = [Envelope(0, 0, EnvelopeKind.RANGE, "0_0_0", "words", 0, "", b"[0, 1]")]
        task = TaskBatch(loaded(data), 0, TaskRun(0, 0), 0, inbox)
        if how == "fail":
            with pytest.raises(ProcessingError) as caught:
                run_task(task)
            assert_visible(str(caught.value))
        else:
            _, report = run_task(task)
            assert "ValueError: no \\x1b[31mred" in lines.getvalue()
            assert_visible(json.dumps(report.payload, ensure_ascii=False, default=repr))
    assert_visible(lines.getvalue(), in_log=True)


def test_loggers_of_the_package_are_escaped() -> None:
    """tools/check_architecture.py has the rule; this is its test."""
    from check_architecture import check_loggers

    found = list(
        check_loggers("penstock.a", [*ast.walk(ast.parse("import logging\nlog = logging.getLogger(__name__)"))])
    )
    assert [line for line, _ in found] == [2]


# Commands


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with open_log(str(tmp_path / "log.db")) as log:
        for name, value in (("texts", HOSTILE), ("json", json.dumps({HOSTILE: HALF}, ensure_ascii=True))):
            log.create_topic(name, 1)
            log.append(name, 0, batch([HOSTILE.encode()], [value.encode()], {HOSTILE: HOSTILE}))
        note_formats(log, "shop", {"json": TopicFormat("string", "json")})
        log.commit_offsets(HOSTILE, {TopicPartition("texts", 0): 1})
    return tmp_path / "log.db"


COMMANDS = (
    ("topics", "consume", "texts", "--headers"),
    ("topics", "consume", "texts", "--headers", "--json"),
    ("topics", "consume", "texts", "--value-format", "bytes"),
    ("topics", "consume", "texts", "--value-format", "long"),
    ("topics", "consume", "texts", "--value-format", "json"),
    ("topics", "consume", "json", "--headers"),
    ("topics", "consume", "json", "--headers", "--json"),
    ("topics", "consume", HOSTILE.replace("\x00", "")),
    ("topics", "describe", HOSTILE.replace("\x00", "")),
    ("topics", "consume", "texts", "--filter", HOSTILE.replace("\x00", "")),
    ("groups", "list"),
    ("groups", "list", "--json"),
    ("groups", "describe", HOSTILE.replace("\x00", "")),
    ("groups", "lag", HOSTILE),
    ("groups", "lag", HOSTILE, "--json"),
    ("metrics", "show", HOSTILE.replace("\x00", "")),
    ("metrics", "show", f"x/{HOSTILE}:1".replace("\x00", "")),
    ("state", "list", HOSTILE.replace("\x00", "")),
)  # fmt: skip


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def call(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["penstock", *map(str, arguments)])
        with contextlib.suppress(SystemExit):
            main()
        return "".join(capsys.readouterr())

    return call


@pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda command: " ".join(command)[:40].encode("unicode_escape").decode()
)
def test_what_commands_print_is_visible(run: Callable[..., str], place: Path, command: tuple[str, ...]) -> None:
    text = run(*command, "-b", place)
    assert_visible(text)
    assert text


def test_json_of_a_record_has_the_record(run: Callable[..., str], place: Path) -> None:
    found = json.loads(run("topics", "consume", "texts", "--headers", "--json", "-b", place))
    assert (found["key"], found["value"], found["headers"]) == (HOSTILE, HOSTILE, [[HOSTILE, HOSTILE]])
    assert json.loads(run("topics", "consume", "json", "--json", "-b", place))["value"] == {HOSTILE: HALF}


def test_a_terminal_gets_no_sequence_of_a_record(place: Path) -> None:
    """Through a real terminal, where commands use colours of their own."""
    for command in (("topics", "consume", "texts", "--headers"), ("groups", "list"), ("groups", "describe", "x" + HOSTILE.replace("\x00", ""))):  # fmt: skip
        parent, child = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *command, "-b", str(place)], stdout=child, stderr=child, stdin=child
        )
        os.close(child)
        found = b""
        while True:
            try:
                part = os.read(parent, 65536)
            except OSError:
                break
            if not part:
                break
            found += part
        process.wait(60)
        os.close(parent)
        text = found.decode().replace("\r\n", "\n")
        assert "red" in text
        for own in (r"\x1b\[[0-9;]*m", r"\x1b\[\?25[hl]", r"\x1b\[\d*[AK]", r"\x1b\[\?\d+[hl]"):  # of colours, of bars
            assert "\x1b[31mred" not in text
            text = re.sub(own, "", text)
        assert_visible(text.replace("\r", ""))


def screens() -> Iterator[tuple[Screen, io.StringIO]]:
    for is_terminal in (False, True):
        written = io.StringIO()
        yield Screen(file=written, force_terminal=is_terminal, width=200, color_system=None), written


def test_what_is_drawn_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    for screen, written in screens():
        monkeypatch.setattr(output, "console", lambda *, stderr=False, found=screen: found)  # type: ignore[misc]
        screen.print(f"a {HALF}")
        output.print_error(HALF, HALF, HOSTILE)
        output.print_table(["Name", "Count#"], [[HALF, 3]])
        screen.print(_table(recorded_metrics({"state": HOSTILE, "reasons": [[HOSTILE, HOSTILE, 3]], "lines": []})))
        renderer = ResultRenderer(screen)
        renderer.show(Rows((HOSTILE,), ("STRING",), [[HOSTILE], [[HOSTILE]], [HALF.encode("utf-8", "surrogatepass")]]))
        renderer.show(Status(HALF))
        text = written.getvalue()
        text.encode()
        assert_visible(text)
        assert "[bold red]x[/] :smile:" in text, "brackets are not markup"


def test_results_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    renderer = ResultRenderer(Screen(file=io.StringIO()), as_json=True)
    renderer.show(Rows(("a",), ("STRING",), [[HALF]]))
    renderer.show(Status(HOSTILE))
    output.print_json({HOSTILE: HALF})
    text = capsys.readouterr().out
    assert_visible(text)
    assert json.loads(text.splitlines()[0]) == {"a": HALF}


def test_tables_of_notebooks() -> None:
    assert_visible(table_html(HOSTILE, [HOSTILE], [[HOSTILE]]) + facts_html(HOSTILE, {HOSTILE: HOSTILE}))


# Metrics


def test_labels_of_metrics() -> None:
    registry = MetricRegistry(RecordingLevel.INFO, clock=lambda: 0)
    registry.gauge(MetricName.of("a-total", "stream-task-metrics", {"reason": HOSTILE}), lambda: 3.0)
    registry.gauge(MetricName.of("state", "stream-metrics", {"client-id": HALF}), lambda: HOSTILE)
    for text in (prometheus_text(registry), alert_lines(HALF, [{"name": "stuck"}])):
        text.encode()
        assert_visible(text)
        assert all(re.match(r"[a-z#]", line) for line in text.splitlines())


# Servers


class Workers:
    url = HOSTILE

    def all(self) -> list[ConnectorState]:
        task = {"id": 0, "state": "FAILED", "worker_id": HOSTILE, "trace": HALF}
        return [ConnectorState("sink", "sink", "FAILED", HOSTILE, [task], {HOSTILE: HALF}, HALF)]

    def topics(self, name: str) -> list[str]:
        return [HOSTILE, name]

    def restart(self, name: str, *, only_failed: bool) -> None:
        raise NotImplementedError(name, only_failed)


@contextmanager
def served(root: Path) -> Iterator[httpx.Client]:
    """A console over hostile records, errors, connectors, stores and groups."""
    stores = Checkpoint(root / "stores")
    stores.batch(lambda task, store: store("plain").put(f"k{task}{HOSTILE}", HOSTILE))
    state = stores.state()
    with recorded(root / "log", state="ERROR") as data:
        for name, value in (("texts", HOSTILE), ("json", json.dumps({HOSTILE: HALF}))):
            data.log.create_topic(name, 1)
            data.log.append(name, 0, batch([HOSTILE.encode()], [value.encode()], {HOSTILE: HOSTILE}))
        data.log.commit_offsets(HOSTILE.replace("/", ""), {TopicPartition("texts", 0): 1})
        names = {"exception": "x.ValueError", "message": HOSTILE, "topic": HOSTILE, "partition": "0", "offset": "1"}
        letters = {f"__streams.errors.{name}": text for name, text in names.items()}
        data.log.append("access_log-bad", 0, batch([b"k"], [b"v"], letters))
        counts = {"reasons": [[NODE, "ValueError", 20]], "causes": [[NODE, HOSTILE, HOSTILE, HOSTILE, 3, 20, [["texts", 0, 0, HALF]]]]}  # fmt: skip
        tasks = data.batch_tasks()
        tasks[0] = {**tasks[0], "counts": counts, "host": HOSTILE}
        data.recorder.failure = ProcessingError(HALF, hint=HOSTILE)
        data.settle(data.batch(tasks=tuple(tasks), dropped=1_000_000))
        own = data.site.applications.get(APPLICATION)
        assert isinstance(own, OwnApplication)
        own.queries = lambda: QueryService(state)
        data.site.connectors = Workers()
        server = ConsoleServer(data.site, ConsoleAddress(port=0, token=None))
        server.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=30) as http:
            yield http
        server.close()
    state.close()
    stores.close()


def test_pages_and_the_interface_of_a_console(tmp_path: Path) -> None:
    name, a = quote(HOSTILE.replace("/", ""), safe=""), "/api/v1"
    paths = [
        "/", "/topology", f"/topology?node={NODE}", f"/topology?node={name}", "/batches", "/tasks", "/errors", "/stores",
        "/groups", f"/groups/{name}", "/connectors?name=sink", "/topics", "/topics/texts", "/topics/json",
        "/topics/texts/0/0", "/topics/json/0/0", f"/topics/{name}", f"/{name}", f"/?app={name}",
        f"/topics/texts?filter={name}", f"/topics/texts?at={name}", f"/topics/texts?value_format={name}",
        "/topics/access_log-bad/0/1", "/stores/plain?ask=1&by=all", f"/stores/plain?ask=1&key={name}", f"/stores/{name}",
        f"{a}/apps", f"{a}/apps/{APPLICATION}", f"{a}/apps/{APPLICATION}/errors", f"{a}/apps/{name}", f"{a}/alerts",
        f"{a}/apps/{APPLICATION}/top?by=dropped", f"{a}/apps/{APPLICATION}/top?by={name}", f"{a}/health", f"{a}/groups",
        f"{a}/metrics", f"{a}/connectors", f"{a}/topics/texts/messages", f"{a}/topics/json/messages",
        f"{a}/topics/texts/0/0", f"{a}/topics/json/0/0", f"{a}/topics/{name}", f"{a}/groups/{name}", f"{a}/{name}",
        f"{a}/apps/{APPLICATION}/stores/plain/range", f"{a}/apps/{APPLICATION}/stores/plain/keys/{name}",
        f"{a}/apps/{APPLICATION}/nodes/{name}", f"{a}/apps/{APPLICATION}/tasks",
    ]  # fmt: skip
    with served(tmp_path) as http:
        for path in paths:
            answer = http.get(path)
            assert answer.status_code < 500 or "health" in path, (path, answer.text[:300])
            text = answer.text
            assert_visible(text)
            if "json" in answer.headers["content-type"]:
                json.loads(text)
        assert "\\x1b[31mred" in http.get("/errors").text
        assert http.get(f"{a}/topics/json/0/0?value_format=json").json()["value"] == {HOSTILE: HALF}
        assert http.get(f"{a}/topics/texts/0/0").json()["value"] == HOSTILE
        for path in (f"/live?of={quote('/topics/json')}", f"{a}/apps/{APPLICATION}/live?seen=0"):
            with http.stream("GET", path) as stream:
                for line in stream.iter_lines():
                    assert_visible(line)
                    if line.startswith("data: "):
                        break
        raw = http.get(f"{a}/topics/texts/0/0?raw=value")
        assert raw.headers["content-disposition"] == 'attachment; filename="texts-0-0.value"'


def test_answers_of_the_other_servers(tmp_path: Path) -> None:
    name = quote(HOSTILE, safe="")
    stores = Checkpoint(tmp_path)
    stores.batch(lambda task, store: store("plain").put(f"k{task}{HOSTILE}", HOSTILE))
    state = stores.state()
    queries = QueryServer(QueryService(state))
    registry = registry_server(Registry(), port=0)
    for server, paths in (
        (
            queries,
            ("/stores/plain/range", f"/stores/plain/keys/{name}", f"/stores/{name}", f"/stores?route={name}"),
        ),
        (registry, (f"/subjects/{name}/versions", f"/subjects/a/versions/{name}", f"/{name}")),
    ):
        server.start()
        port = server.host_info.port if isinstance(server, QueryServer) else server.port
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            for path in paths:
                answer = http.get(path)
                assert answer.status_code < 500
                assert_visible(answer.text)
                json.loads(answer.text)
        server.close()
    state.close()
    stores.close()
    for body in ({HOSTILE: HOSTILE}, {"message": HOSTILE}):
        text = RestAnswer(200, body).encoded().decode()
        assert_visible(text)
        assert json.loads(text) == body
