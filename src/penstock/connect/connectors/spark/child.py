"""The child process of a task, which runs PySpark."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any

from penstock.engines.spark.connector.frames import Frame, read_frame, write_frame
from penstock.errors import ConnectError

__all__ = ["SparkChild"]

_STOP_S = 10.0


class SparkChild:
    """A process that runs PySpark for one task, and ends with it.

    Args:
        head: What it does: the first message.
        name: The connector's name, for messages.
    """

    def __init__(self, head: Mapping[str, Any], name: str) -> None:
        self._name = name
        self._frames: queue.Queue[Frame | None] = queue.Queue(2)
        command = [sys.executable, "-m", "penstock.engines.spark.connector"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        threading.Thread(target=_listen, args=[self._process.stdout, self._frames], daemon=True).start()
        self.send(Frame(dict(head)))

    def send(self, frame: Frame) -> None:
        """Send a message.

        Raises:
            ConnectError: The process has ended.
        """
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        try:
            write_frame(self._process.stdin, frame)  # type: ignore[arg-type] # buffered bytes
        except OSError as error:
            raise self._ended() from error

    def receive(self, timeout_s: float | None) -> Frame | None:
        """Receive a message; None if there is none within the time.

        Raises:
            ConnectError: Spark has failed, or the process has ended.
        """
        try:
            frame = self._frames.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if frame is None:
            self._frames.put(None)
            raise self._ended()
        if frame.head["kind"] == "error":
            raise ConnectError(
                f"Spark of connector {self._name}: {frame.head['text']}",
                hint="Check spark.format, spark.option.* and spark.schema; the task's log has more of it.",
            )
        return frame

    def stop(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _ended(self) -> ConnectError:
        code = self._process.poll()
        return ConnectError(
            f"the Spark process of connector {self._name} has ended" + ("" if code is None else f" (exit code {code})"),
            hint="Its output in the worker's log says why: Java 17 and PySpark are needed (penstock doctor).",
        )


def _listen(out: IO[bytes], frames: queue.Queue[Frame | None]) -> None:
    """Take messages; it knows no `SparkChild`, so that one which is given up is collected, which ends its process."""
    with contextlib.suppress(OSError, ValueError):
        while (frame := read_frame(out)) is not None:  # type: ignore[arg-type] # buffered bytes
            frames.put(frame)
    with contextlib.suppress(queue.Full):
        frames.put(None, timeout=_STOP_S)
