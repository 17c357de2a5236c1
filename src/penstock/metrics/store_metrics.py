"""The metrics of one store of a task."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from penstock.metrics.name import MetricName
from penstock.metrics.store_definitions import BYTES_WRITTEN, CALLS, COMMIT, OWN, RESTORE, STATE, SUPPRESSED

if TYPE_CHECKING:
    from penstock.metrics.registry import Meter, MetricRegistry
    from penstock.metrics.shapes import MeterDefinition
    from penstock.topology.stores import StoreSpec

__all__ = ["StoreMetrics", "scope_of"]

_NANOSECONDS = 1e9
_WINDOWS = ("window", "session")
# The calls that Kafka measures of each kind of store.
_CALLS_OF = {"window": ("put", "fetch"), "session": ("put", "fetch", "remove")}
_CALLS = ("get", "put", "delete", "range", "all")


def scope_of(spec: StoreSpec, *, suppresses: bool = False) -> str:
    """Return the tag that names a store of this kind, such as ``lmdb-window-state-id``.

    It is Kafka's for stores in memory; of the others ``lmdb`` stands where Kafka has ``rocksdb``.
    """
    if suppresses:
        return "in-memory-suppression-state-id"
    if spec.max_entries:
        return "in-memory-lru-state-id"
    kind = f"-{spec.kind}" if spec.kind in _WINDOWS else ""
    return f"{'lmdb' if spec.persistent else 'in-memory'}{kind}-state-id"


class StoreMetrics:
    """Adds the metrics of a store to a registry, and its counts to them.

    Args:
        registry: The application's metrics.
        spec: The store.
        task: The tags of its task.
        suppresses: Whether it is the buffer of a suppression.
    """

    def __init__(
        self, registry: MetricRegistry, spec: StoreSpec, task: Mapping[str, str], *, suppresses: bool = False
    ) -> None:
        self._registry = registry
        self._tags = {**task, scope_of(spec, suppresses=suppresses): spec.name}
        self._kind, self._suppresses, self._persistent = spec.kind, suppresses, spec.persistent and not spec.max_entries
        self._own = {"task-id": task["task-id"], "store": spec.name}
        self._entries: int | None = None
        self._buffered = registry.meter(SUPPRESSED, self._tags) if suppresses else None
        meter = _no_meter if suppresses else registry.meter  # Kafka measures such a buffer by its size alone
        self._written = meter(BYTES_WRITTEN, self._tags) if self._persistent else None
        self._commits, self._restores = meter(COMMIT, self._tags), meter(RESTORE, self._tags)
        self._calls = {name: meter(CALLS[name], self._tags) for name in _CALLS_OF.get(spec.kind, _CALLS)}
        self._totals = [0.0, 0.0, 0.0]  # rows, bytes, flushes
        self._called: dict[str, float] = {}
        self._bytes: int | None = None

    def record_entries(self, entries: int) -> None:
        """Note how many rows the store has."""
        if self._entries is None:
            self._add_gauges()
        self._entries = entries
        if self._buffered is not None:
            self._buffered.record(entries)

    def record_bytes(self, size: int) -> None:
        """Note how many bytes the store takes on disk."""
        if self._bytes is None:
            name = MetricName.of("store-bytes", OWN, self._own, "Bytes of the store on disk before the newest batch.")
            self._registry.gauge(name, lambda: self._bytes or 0)
        self._bytes = size

    def record_call(self, call: str, keys: float, seconds: float) -> None:
        """Add the calls of a batch: their keys, and their time."""
        if self._kind in _WINDOWS and call in ("get", "range", "all"):
            call = "fetch"
        elif self._kind == "session" and call == "delete":
            call = "remove"
        if call not in self._called:
            words = "Keys that were looked up, written or deleted, or scans, since the start."
            name = MetricName.of("store-calls-total", OWN, {**self._own, "call": call}, words)
            self._registry.gauge(name, partial(self._called.__getitem__, call))
        self._called[call] = self._called.get(call, 0.0) + keys
        _many(self._calls.get(call), keys, seconds)

    def record_flush(self, rows: float, size: float, seconds: float) -> None:
        """Add what a batch or commit has changed."""
        self._totals = [a + b for a, b in zip(self._totals, (rows, size, 1), strict=True)]
        if self._written is not None:
            self._written.record(size)
        _many(self._commits, 1, seconds)

    def record_restore(self, seconds: float) -> None:
        """Add a catch-up of the replica."""
        _many(self._restores, 1, seconds)

    def _add_gauges(self) -> None:
        rows = "Rows of the store before the newest batch"
        gauges = [
            (
                STATE,
                "num-keys",
                self._tags,
                f"{rows}, of any kind; windows and versions are rows of their own.",
            ),
            (STATE, "estimate-num-keys", self._tags, f"{rows}; exact."),
            (STATE, "num-open-iterators", self._tags, "Scans that are open between batches: none outlives a batch."),
            (OWN, "store-rows", self._own, f"{rows}."),
        ]
        left_out = {"num-keys", "estimate-num-keys", "num-open-iterators"} if self._suppresses else set()
        if not self._persistent:
            left_out.add("estimate-num-keys")
        for group, name, tags, description in gauges:
            if name in left_out:
                continue
            read = (lambda: 0) if name == "num-open-iterators" else (lambda: self._entries or 0)
            self._registry.gauge(MetricName.of(name, group, tags, description), read)
        totals = ("Rows that were written or deleted.", "Bytes of these rows.", "Batches or commits that changed it.")
        for at, (name, description) in enumerate(zip(("rows", "bytes", "flushes"), totals, strict=True)):
            key = MetricName.of(f"store-written-{name}-total", OWN, self._own, description)
            self._registry.gauge(key, partial(self._total, at))

    def _total(self, at: int) -> float:
        return self._totals[at]


def _no_meter(definition: MeterDefinition, tags: Mapping[str, str]) -> None:
    """Make no meter."""


def _many(meter: Meter | None, keys: float, seconds: float) -> None:
    if meter is not None and keys:
        each = seconds * _NANOSECONDS / keys
        meter.record_many(seconds * _NANOSECONDS, int(keys), each, each)
