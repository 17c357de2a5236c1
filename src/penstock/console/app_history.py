"""What happened to an application over hours and starts: rows of its stores, restarts, kinds of errors."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from penstock.engines.spark.progress import BatchProgress, counted_by

__all__ = ["Past"]

_SAMPLE_MS = 300_000
_SAMPLES = 13  # an hour
_HOUR_MS = 3_600_000
_MOST = 200  # restarts, kinds of errors
_MOST_CHARACTERS = 200
LOST_PROCESS = "a process that ran tasks was lost"
LOST_APPLICATION = "the application's own process was killed or lost"

Rows = dict[str, tuple[int, int]]  # store -> the number of its tasks, their rows


class Past:
    """The long memory behind alerts; the checkpoint keeps it.

    >>> past = Past()
    >>> for minute in range(0, 61, 5):
    ...     past.look({"counts": {"0_0": 1000 + minute}}, 0, minute * 60_000)
    >>> past.document()["growth"]
    [['counts', 1000, 1060]]
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Rows]] = deque(maxlen=_SAMPLES)
        self._rows: Rows = {}
        self._restarts: deque[tuple[int, str]] = deque(maxlen=_MOST)
        self._counted = 0
        self._errors: dict[tuple[str, str], list[int]] = {}

    def look(self, stores: Mapping[str, Mapping[str, int]], restarts: int, now_ms: int) -> None:
        """Note the rows of each store by task, and how often the application has begun again since its start."""
        self._rows = {store: (len(tasks), sum(tasks.values())) for store, tasks in stores.items()}
        if self._rows and (not self._samples or now_ms - self._samples[-1][0] >= _SAMPLE_MS):
            self._samples.append((now_ms, self._rows))
        for _ in range(min(restarts - self._counted, _MOST)):
            self._restarts.append((now_ms, LOST_PROCESS))
        self._counted = restarts

    def add(self, progress: BatchProgress, now_ms: int) -> None:
        """Note the errors of a batch that handlers have let pass."""
        for counts in (each for task in progress.tasks for each in counted_by(task)):
            for node, kind, _, count in counts.get("errors", ()):
                self._fail(node, kind, count, now_ms)

    def ended_without_a_word(self, now_ms: int) -> None:
        """Note that the application's last process is gone, and had not stopped."""
        self._restarts.append((now_ms, LOST_APPLICATION))

    def document(self) -> dict[str, Any]:
        """Return what alerts look at, for JSON: stores with rows an hour ago and now, restarts, kinds of errors."""
        return {
            "growth": self._growth(),
            "restarts": [list(each) for each in self._restarts],
            "error_kinds": [[*key, *numbers] for key, numbers in self._errors.items()],
        }

    def kept(self) -> dict[str, Any]:
        """Return all of it for the checkpoint."""
        samples = [[at, {store: list(each) for store, each in rows.items()}] for at, rows in self._samples]
        return {**self.document(), "samples": samples}

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Go on with what `kept` has returned; what another version or hand has written is left out."""
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            samples = [
                (int(at), {str(n): (int(t), int(r)) for n, (t, r) in rows.items()}) for at, rows in kept["samples"]
            ]
            restarts = [(int(at), str(why)) for at, why in kept["restarts"]]
            errors = {(str(n), str(kind)): [int(each) for each in numbers] for n, kind, *numbers in kept["error_kinds"]}
            self._samples.extend(samples)
            self._restarts.extend(restarts)
            self._errors.update(errors)

    def _fail(self, node: str, kind: str, count: int, now_ms: int) -> None:
        key = (node[:_MOST_CHARACTERS], kind[:_MOST_CHARACTERS])
        if key in self._errors or len(self._errors) < _MOST:
            count_and_times = self._errors.setdefault(key, [0, now_ms, now_ms])
            count_and_times[0] += count
            count_and_times[2] = now_ms

    def _growth(self) -> list[list[Any]]:
        """Return the stores that have only grown for an hour: no window has closed, no task has come or gone."""
        if not self._samples or self._samples[-1][0] - self._samples[0][0] < _HOUR_MS:
            return []
        growing = []
        for store, now in self._rows.items():
            past = [rows[store] for _, rows in self._samples if store in rows]
            rows = [each[1] for each in (*past, now)]
            if len(past) == len(self._samples) and {each[0] for each in past} == {now[0]} and rows == sorted(rows):
                growing.append([store, rows[0], rows[-1]])
        return growing
