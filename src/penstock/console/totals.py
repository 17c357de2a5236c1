"""What an application has done since it started, by node, task, store and reason; and its rates now."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from penstock.engines.spark.progress import BatchProgress, counted_by
from penstock.metrics.task_counts import OTHER_REASONS
from penstock.runtime.global_stores import GLOBAL_TASK

__all__ = ["Totals"]

_RECENT_MS = 10_000
_MOST_REASONS = 200
_MOST_REASON_CHARACTERS = 300

Amounts = dict[str, list[float]]


class Totals:
    """Sums over batches. Amounts of a node: rows in, rows out, seconds.

    Attributes:
        sums: Batches, records in and out, dropped records, since the start.
        nodes: The amounts of each node since the start.
        topics: Records and bytes that each node has written to or read from each topic, by ``node topic``.
        stores: Rows of each store by task.
        reasons: Node and reason -> count, the times of the first and of the newest drop.
        positions: The offset of the next record, by ``topic-partition``.
        lost: Offsets that retention removed before they were read, by ``topic-partition``.
        stream_time_ms: The largest timestamp seen; -1 for none.
    """

    def __init__(self) -> None:
        self.sums = {"batches": 0, "records_in": 0, "records_out": 0, "dropped": 0}
        self.nodes: Amounts = {}
        self.topics: Amounts = {}
        self.stores: dict[str, dict[str, int]] = {}
        self.reasons: dict[tuple[str, str], list[int]] = {}
        self.positions: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.stream_time_ms = -1
        self._recent: deque[tuple[int, Amounts, Mapping[str, int]]] = deque()
        self._began_ms: int | None = None

    def add(self, progress: BatchProgress, now_ms: int) -> None:
        """Add a batch that ended now."""
        done = (1, progress.records_in, progress.records_out, progress.dropped)
        self.sums = {name: total + more for (name, total), more in zip(self.sums.items(), done, strict=True)}
        self.stream_time_ms = max(self.stream_time_ms, progress.stream_time_ms)
        nodes: Amounts = {}
        for task in progress.tasks:
            self.positions |= task.get("ends", {})
            for counts in counted_by(task):
                self._counts(counts, nodes, now_ms)
            for store, rows in task.get("entries", {}).items():
                self.stores.setdefault(store, {})[task["task"]] = rows
            for store, rows in task.get("global", {}).get("entries", {}).items():
                self.stores[store] = {GLOBAL_TASK: rows}
        for name, offsets in progress.lost.items():
            self.lost[name] = self.lost.get(name, 0) + offsets
        for node, amounts in nodes.items():
            _add(self.nodes, node, amounts)
        span = {"in": progress.records_in, "out": progress.records_out}
        self._recent.append((now_ms, nodes, span))
        if self._began_ms is None:
            self._began_ms = now_ms - int(progress.seconds * 1000)

    def _counts(self, counts: Mapping[str, Any], nodes: Amounts, now_ms: int) -> None:
        """Add what a task has counted; the amounts of its nodes to those of the batch."""
        for node, rows in counts.get("read", {}).items():
            _add(nodes, node, [rows, rows, 0.0])
        for node, amounts in counts.get("nodes", {}).items():
            _add(nodes, node, amounts)
        for node, topic, records, size in counts.get("produced", ()):
            _add(nodes, node, [records, records, 0.0])
            _add(self.topics, f"{node} {topic}", [records, size])
        for node, topic, records, size in counts.get("consumed", ()):
            _add(self.topics, f"{node} {topic}", [records, size])
        for node, reason, count in counts.get("reasons", ()):
            key = (node, str(reason)[:_MOST_REASON_CHARACTERS])
            if key not in self.reasons and len(self.reasons) >= _MOST_REASONS:
                key = (node, OTHER_REASONS)
            count_and_times = self.reasons.setdefault(key, [0, now_ms, now_ms])
            count_and_times[0] += count
            count_and_times[2] = now_ms

    def rates(self, now_ms: int) -> dict[str, Any]:
        """Return rows a second of each node, and records a second in and out, over the last ten seconds."""
        while self._recent and self._recent[0][0] <= now_ms - _RECENT_MS:
            self._recent.popleft()
        began = now_ms if self._began_ms is None else self._began_ms
        seconds = min(_RECENT_MS, max(now_ms - began, 1000)) / 1000
        nodes: Amounts = {}
        sums = {"in": 0, "out": 0}
        for _, amounts, span in self._recent:
            sums = {side: total + span[side] for side, total in sums.items()}
            for node, each in amounts.items():
                _add(nodes, node, each)
        rates = {node: [round(value / seconds, 4) for value in each] for node, each in nodes.items()}
        return {"in": round(sums["in"] / seconds, 2), "out": round(sums["out"] / seconds, 2), "nodes": rates}

    def document(self, now_ms: int) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            "sums": self.sums,
            "rates": self.rates(now_ms),
            "nodes": {name: [round(value, 4) for value in each] for name, each in self.nodes.items()},
            "topics": self.topics,
            "stores": self.stores,
            "reasons": [[*key, *counts] for key, counts in self.reasons.items()],
            "positions": self.positions,
            "lost": self.lost,
            "stream_time_ms": self.stream_time_ms,
        }


def _add(amounts: Amounts, name: str, more: Any) -> None:
    before = amounts.get(name)
    amounts[name] = list(more) if before is None else [a + b for a, b in zip(before, more, strict=True)]
