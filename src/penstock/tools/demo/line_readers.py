"""Readers of the demo's file, line by line into a topic: a Connect worker, or without its packages a plain thread."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.connect.connectors.file_positions import noted_offset
from penstock.connect.file_source import FilePositions, FileSource
from penstock.errors import ConnectError, LogError, PenstockError
from penstock.log.base import TopicLog

__all__ = ["READ_S", "ConnectLines", "PlainLines", "lines_of"]

NAME = "nginx"
_STRING = "org.apache.kafka.connect.storage.StringConverter"
_WORKER_TOPICS = {f"{kind}.storage.topic": f"connect-demo-{kind}" for kind in ("config", "offset", "status")}
_CHUNK_BYTES = 1 << 20
_REQUEST_S = 60
READ_S = 60.0


class ConnectLines:
    """A distributed worker in this process, on a free port, with one connector that reads a file.

    Args:
        log_settings: ``bootstrap.servers`` and what else the log needs.
        file: The file.
        topic: The topic of its lines.
        on_note: Called with what a user should know.
    """

    def __init__(self, log_settings: Mapping[str, str], file: Path, topic: str, on_note: Callable[[str], None]) -> None:
        from penstock.connect.rest import WorkerServer
        from penstock.connect.worker_settings import WorkerConfig

        self._file, self._topic, self._on_note = file, topic, on_note
        settings = {
            **log_settings,
            "group.id": "connect-demo",
            **_WORKER_TOPICS,
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            "key.converter": _STRING,
            "value.converter": _STRING,
            "listeners": "http://127.0.0.1:0",
        }
        self._server = WorkerServer(WorkerConfig.of(settings, "distributed"))
        self._offset_bytes = self._counted_to = self._lines = 0
        self._closed = False

    @property
    def url(self) -> str:
        """The URL of the worker's REST interface."""
        return f"http://127.0.0.1:{self._server.port}"

    def start(self, log: TopicLog) -> None:
        """Start the worker; create the connector, unless an earlier run has done so.

        Args:
            log: The log, in which a demo of before there was Connect may have left its position.

        Raises:
            LogError: The worker does not start.
            ConnectError: It refuses the connector.
        """
        self._server.start()
        if not self._server.wait_until_ready():
            raise LogError("the Connect worker does not become ready", hint="The log of the demo says why.")
        if NAME not in self._ask("GET", "/connectors"):
            self._take_over(log)
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": str(self._file),
            "topic": self._topic,
        }
        if NAME not in self._ask("GET", "/connectors"):
            body = {"name": NAME, "config": config}
            self._on_note(
                "a Connect worker reads the lines into the topic; its connector, as one would make it by hand:\n"
                f"  curl -X POST -H 'Content-Type: application/json' {self.url}/connectors -d '{json.dumps(body)}'"
            )
            self._ask("POST", "/connectors", body)
        elif self._ask("GET", f"/connectors/{NAME}/config") != {"name": NAME, **config}:
            self._ask("PUT", f"/connectors/{NAME}/config", config)

    @property
    def offset_bytes(self) -> int:
        """The byte before which all lines are in the topic."""
        if self._closed:
            return self._offset_bytes
        offsets = self._server.worker.herder.stores.offsets
        offsets.refresh()
        stored = offsets.offset(NAME, {"filename": str(self._file)})
        self._offset_bytes = int(stored["position"]) if stored else 0
        return self._offset_bytes

    def total_lines(self) -> int:
        """Return the lines that are in the topic, of this run and those before."""
        end = self.offset_bytes
        if end > self._counted_to:
            with self._file.open("rb") as file:
                file.seek(self._counted_to)
                while self._counted_to < end:
                    piece = file.read(min(_CHUNK_BYTES, end - self._counted_to))
                    if not piece:
                        break
                    self._lines += piece.count(b"\n")
                    self._counted_to += len(piece)
        return self._lines

    def has_read_all(self) -> bool:
        """Return whether all whole lines that the file has now are in the topic."""
        return self.offset_bytes >= _whole_lines(self._file)

    def finish(self, timeout_s: float) -> None:
        """Wait until all whole lines that the file has now are in the topic, and stop the worker.

        Raises:
            ConnectError: The connector has failed.
        """
        end = _whole_lines(self._file)
        deadline = time.monotonic() + timeout_s
        while self.offset_bytes < end and time.monotonic() < deadline:
            self._check()
            time.sleep(0.1)
        self.close()

    def close(self) -> None:
        """Stop the worker; safe to call twice."""
        if not self._closed:
            with contextlib.suppress(PenstockError):
                self._offset_bytes = self.offset_bytes
            self._closed = True
            self._server.stop()

    def _check(self) -> None:
        status = self._ask("GET", f"/connectors/{NAME}/status")
        for part in (status["connector"], *status["tasks"]):
            if part["state"] == "FAILED":
                raise ConnectError(
                    f"the connector {NAME} has failed: {part.get('trace', '').partition(chr(10))[0]}",
                    hint=f"curl {self.url}/connectors/{NAME}/status shows all.",
                )

    def _take_over(self, log: TopicLog) -> None:
        """Go on where a demo without Connect has stopped."""
        stored = FilePositions(log, f"file:{self._file}", self._file).stored()
        if stored is not None:
            self._server.worker.herder.stores.offsets.put(NAME, [({"filename": str(self._file)}, noted_offset(stored))])

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - this process's own server
            f"{self.url}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_S) as answer:  # noqa: S310
                return json.loads(answer.read() or b"null")
        except OSError as error:
            raise ConnectError(f"the Connect worker refuses {method} {path}: {error}") from error


class PlainLines:
    """The same lines without a worker, whose REST interface needs packages of the extra ``connect``.

    It reads as ``penstock connect file`` does. A later run with a worker goes on where it stopped.

    Args:
        file: The file.
        topic: The topic of its lines.
        on_note: Called with what a user should know.
    """

    def __init__(self, file: Path, topic: str, on_note: Callable[[str], None]) -> None:
        self._file, self._topic, self._on_note = file, topic, on_note
        self._source: FileSource | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def start(self, log: TopicLog) -> None:
        """Start reading.

        Args:
            log: The log.

        Raises:
            ConnectError: A worker has read the file in an earlier run, and knows where it goes on.
        """
        if any(topic.name == _WORKER_TOPICS["config.storage.topic"] for topic in log.topics()):
            raise ConnectError(
                "an earlier run of this demo has read the lines by a Connect worker, which the extra connect brings",
                hint='Install it: pip install "penstock[connect]". Or choose another --dir, to start from nothing.',
            )
        self._on_note('the lines are read in this process; with the extra "connect" a Connect worker reads them')
        self._file.touch()  # it is written from now on
        self._source = FileSource(log, self._file, self._topic, on_note=self._on_note)
        self._thread = threading.Thread(target=self._follow, args=[self._source], name="demo-lines", daemon=True)
        self._thread.start()

    @property
    def offset_bytes(self) -> int:
        """The byte before which all lines are in the topic."""
        return self._source.status().offset_bytes if self._source else 0

    def total_lines(self) -> int:
        """Return the lines that are in the topic, of this run and those before."""
        return self._source.status().total_lines if self._source else 0

    def has_read_all(self) -> bool:
        """Return whether all whole lines that the file has now are in the topic."""
        return self._failure is not None or self.offset_bytes >= _whole_lines(self._file)

    def finish(self, timeout_s: float) -> None:
        """Wait until all whole lines that the file has now are in the topic, and stop.

        Raises:
            BaseException: The one with which reading has failed.
        """
        self._stop(timeout_s)
        if self._failure:
            raise self._failure

    def close(self) -> None:
        """Stop; safe to call twice."""
        self._stop(READ_S)

    def _stop(self, timeout_s: float) -> None:
        if self._source and self._thread:
            self._source.stop()  # it reads what there is by then
            self._thread.join(timeout_s)

    def _follow(self, source: FileSource) -> None:
        try:
            source.follow()
        except BaseException as error:  # noqa: BLE001 - raised by finish
            self._failure = error


def lines_of(file: Path, log_settings: Mapping[str, str], on_note: Callable[[str], None]) -> ConnectLines | PlainLines:
    """Return the reader of the demo's file: a Connect worker if its packages are installed.

    Args:
        file: The file.
        log_settings: ``bootstrap.servers`` and what else the log needs.
        on_note: Called with what a user should know.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        return PlainLines(file, "access_log", on_note)
    return ConnectLines(log_settings, file, "access_log", on_note)


def _whole_lines(file: Path) -> int:
    """Return the length of a file up to the end of its last whole line."""
    if not file.exists():
        return 0
    end = file.stat().st_size
    with file.open("rb") as opened:
        at = end
        while at > 0:
            first = max(at - _CHUNK_BYTES, 0)
            opened.seek(first)
            newline = opened.read(at - first).rfind(b"\n")
            if newline >= 0:
                return first + newline + 1
            at = first
    return 0
