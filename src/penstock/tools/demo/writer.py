"""Writing of a generated access log while the job runs, after the file's last line."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

from penstock.base.clock import unix_ms
from penstock.connect.generators.access_log import access_log
from penstock.connect.generators.base import GeneratorSettings, paced
from penstock.tools.demo.access_log import hit_time

__all__ = ["LogWriter"]

# The log's clock runs ten times as fast, so that several minutes pass during the demo.
SPEED = 10
DISORDER_MS = 5_000
_TAIL_BYTES = 1 << 16


class LogWriter:
    """A thread that appends lines to a file.

    Args:
        path: The file.
        rate: Lines per second of real time.
    """

    def __init__(self, path: Path, rate: float) -> None:
        self.path = path
        self.lines = 0
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="access-log-writer", daemon=True)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after a whole line."""
        self._stop.set()
        self._thread.join(10)

    def _write(self) -> None:
        written = self.path.stat().st_size if self.path.exists() else 0
        start_ms = _last_time(self.path) if written else unix_ms() - 600_000
        settings = GeneratorSettings(
            seed=written,  # another stretch of visits in each run
            rate=self._rate / SPEED,
            start_ms=start_ms,
            disorder_ms=DISORDER_MS,
        )
        with self.path.open("a", encoding="utf-8") as file:
            for group in paced(access_log(settings), self._rate, stopped=self._stop.is_set):
                file.write("".join(record.value + "\n" for record in group))
                file.flush()
                self.lines += len(group)


def _last_time(path: Path) -> int:
    """Return the latest time among the last lines, plus a second, so that no later line is older."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return max(hit_time(SimpleNamespace(value=line), 0) for line in lines) + 1000
