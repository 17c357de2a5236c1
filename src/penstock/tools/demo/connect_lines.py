"""Lines of the demo's file by a Connect worker: the worker, the call that creates the connector, its progress."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.connect.connectors.file_positions import noted_offset
from penstock.connect.file_source import FilePositions
from penstock.connect.rest import WorkerServer
from penstock.connect.worker_settings import WorkerConfig
from penstock.errors import ConnectError, LogError, PenstockError
from penstock.log.base import TopicLog
from penstock.tools.demo.demo_log import TopicPlace

__all__ = ["ConnectLines"]

NAME = "nginx"
_STRING = "org.apache.kafka.connect.storage.StringConverter"
_CHUNK_BYTES = 1 << 20
_REQUEST_S = 60


class ConnectLines:
    """A distributed worker in this process, on a free port, with one connector that reads a file.

    Args:
        demo_log: The log.
        file: The file.
        topic: The topic of its lines.
        on_note: Called with what a user should know.
    """

    def __init__(self, demo_log: TopicPlace, file: Path, topic: str, on_note: Callable[[str], None]) -> None:
        self._file, self._topic, self._on_note = file, topic, on_note
        topics = {f"{kind}.storage.topic": f"connect-demo-{kind}" for kind in ("config", "offset", "status")}
        settings = {
            **demo_log.settings,
            "bootstrap.servers": demo_log.bootstrap_servers,
            "group.id": "connect-demo",
            **topics,
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
        place = FilePositions(log, f"file:{self._file}", self._file).stored()
        if place is not None:
            self._server.worker.herder.stores.offsets.put(NAME, [({"filename": str(self._file)}, noted_offset(place))])

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
