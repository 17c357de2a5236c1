"""The fixed library of named processors that recorded cases use."""

from __future__ import annotations

from typing import Any

from functions import measure, text, throw_at
from header_processors import HeaderSteps, entry_text
from java_errors import boom
from penstock.api.processing.processor import FixedKeyProcessor, Processor, ProcessorContext, Record
from penstock.serde.windowed import Window, Windowed

__all__ = ["CaseFixedKeyProcessor", "CaseProcessor", "PutProcessor", "processor_type"]

SAME_TYPE = {
    "passthrough", "dedup", "route", "add_header", "shift_timestamp", "drop_null", "null_key",
    "to_null_value", "negative_timestamp", "bad_child",
}  # fmt: skip


def processor_type(f: dict[str, Any], before: str) -> str:
    """The type of the values that a processor forwards."""
    if f["name"] in ("running_total", "count_and_punctuate"):
        return "long"
    return before if f["name"] in SAME_TYPE else "string"


class _Steps(HeaderSteps):
    """One method for each name; ``init`` gets the store and starts the schedule."""

    def __init__(self, spec: dict[str, Any], running: dict[str, Any] | None = None) -> None:
        self.f = spec
        self.fired = 0
        self.runs = 0
        self.running = {} if running is None else running

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.store: Any = context.get_state_store(self.f["store"]) if "store" in self.f else None
        if "interval_ms" in self.f:
            kind = "stream_time" if self.f.get("time", "stream") == "stream" else "wall_clock_time"
            self.timer = context.schedule(self.f["interval_ms"], kind, self.punctuate, start=self.f.get("start_ms"))

    def process(self, r: Record[Any, Any]) -> None:
        throw_at(self.f, "throw_at", r.key, r.value)
        getattr(self, self.f["name"])(r, r.key, r.value)
        throw_at(self.f, "throw_after", r.key, r.value)

    def forward(self, r: Record[Any, Any], value: Any) -> None:
        self.context.forward(r.with_value(value))

    def punctuate(self, timestamp: int) -> None:
        self.runs += 1
        if self.runs in self.f.get("throw_at_run", ()):
            raise boom(self.f, f"boom run {self.runs} at {timestamp}")
        if self.f["name"] == "ticks":
            self._tick(timestamp)
        else:
            for key, count in list(self.store.all()):
                self.context.forward(Record(key, count, timestamp))
                self.store.delete(key)
        self.fired += 1
        if self.fired >= self.f.get("times", float("inf")):
            self.timer.cancel()

    def _tick(self, at: int) -> None:
        c = self.context
        times = f"st={c.current_stream_time_ms()}|wt={c.current_system_time_ms()}"
        has_metadata = str(c.record_metadata() is not None).lower()
        c.forward(Record("tick", f"{self.runs}@{at}|{times}|{has_metadata}", at))

    def ticks(self, r: Any, k: Any, v: Any) -> None:
        pass

    def to_null_value(self, r: Any, k: Any, v: Any) -> None:
        self.forward(r, None)

    def negative_timestamp(self, r: Any, k: Any, v: Any) -> None:
        self.context.forward(r.with_timestamp(-1))

    def bad_child(self, r: Any, k: Any, v: Any) -> None:
        self.context.forward(r, "nowhere")

    def passthrough(self, r: Any, k: Any, v: Any) -> None:
        self.context.forward(r)

    def drop_null(self, r: Any, k: Any, v: Any) -> None:
        if v is not None:
            self.context.forward(r)

    def null_key(self, r: Any, k: Any, v: Any) -> None:
        self.context.forward(r.with_key(None))

    def twice(self, r: Any, k: Any, v: Any) -> None:
        self.forward(r, text(v))
        self.forward(r, text(v) + "'")

    def meta(self, r: Any, k: Any, v: Any) -> None:
        c, at = self.context, self.context.record_metadata()
        where = "-" if at is None else f"{text(at.topic)}:{at.partition}:{at.offset}"
        self.forward(r, f"{text(v)}|st={c.current_stream_time_ms()}|wt={c.current_system_time_ms()}|{where}")

    def add_header(self, r: Any, k: Any, v: Any) -> None:
        self.context.forward(r.with_headers((*r.headers, (self.f["header"], text(v).encode()))))

    def headers_to_value(self, r: Any, k: Any, v: Any) -> None:
        shown = "".join(f"{name}={'null' if x is None else x.decode()};" for name, x in r.headers)
        self.forward(r, f"{text(v)}[{shown}]")

    def shift_timestamp(self, r: Any, k: Any, v: Any) -> None:
        self.context.forward(r.with_timestamp(max(0, r.timestamp + self.f["ms"])))

    def route(self, r: Any, k: Any, v: Any) -> None:
        children = self.f["children"]
        self.context.forward(r, None if v is None else children[measure(v) % len(children)])

    def dedup(self, r: Any, k: Any, v: Any) -> None:
        if k is not None and self.store.get(k) != v:
            self.store.put(k, v)
            self.context.forward(r)

    def running_total(self, r: Any, k: Any, v: Any) -> None:
        if k is None:
            return
        if v is None:
            self.store.delete(k)
            self.forward(r, None)
            return
        total = (self.store.get(k) or 0) + measure(v)
        self.store.put(k, total)
        self.forward(r, total)

    def count_and_punctuate(self, r: Any, k: Any, v: Any) -> None:
        if k is not None:
            self.store.put(k, (self.store.get(k) or 0) + 1)

    def timestamped_max(self, r: Any, k: Any, v: Any) -> None:
        if k is None:
            return
        old = self.store.get(k)
        if old is not None and measure(old.value) > measure(v):
            self.forward(r, f"{text(old.value)}@{old.timestamp}")
            return
        self.store.put(k, v, r.timestamp)
        self.forward(r, f"{text(v)}@{r.timestamp}")

    def lookup(self, r: Any, k: Any, v: Any) -> None:
        if k is not None:
            found = self.store.get(k)
            shown = (
                entry_text(found)
                if self.f.get("full") or hasattr(found, "headers")
                else text(getattr(found, "value", found))
            )
            self.forward(r, f"{text(v)}~{shown}")

    def window_log(self, r: Any, k: Any, v: Any) -> None:
        if k is None:
            return
        size, ts = self.f["size_ms"], r.timestamp
        start = ts - ts % size
        self.store.put(k, None if v is None else (self.store.fetch(k, start) or 0) + 1, start)
        found = self.store.fetch_range(k, max(0, ts - 3 * size), ts + size)
        self.forward(r, "".join(f"{at}:{count};" for at, count in found))

    def session_log(self, r: Any, k: Any, v: Any) -> None:
        if k is None:
            return
        gap, ts = self.f["gap_ms"], r.timestamp
        found = list(self.store.find_sessions(k, max(0, ts - gap), ts + gap))
        start, end, count = ts, ts, 1
        for session, number in found:
            start, end, count = min(start, session.window.start), max(end, session.window.end), count + number
            self.store.remove(session)
        self.store.put(Windowed(k, Window(start, end)), count)
        shown = "".join(f"{session.window.start}-{session.window.end};" for session, _ in found)
        self.forward(r, f"{shown}>{start}-{end}:{count}")

    def versioned_log(self, r: Any, k: Any, v: Any) -> None:
        if k is None:
            return
        if v is None or not text(v).startswith("?"):
            self.forward(r, f"put:{self.store.put(k, v, r.timestamp)}")
            return
        found = self.store.get(k, int(text(v)[1:]))
        # Java's store has lost the end by the time a processor sees it.
        self.forward(r, "none" if found is None else f"{text(found.value)}@{found.timestamp}-")

    def range(self, r: Any, k: Any, v: Any) -> None:
        if k is None:
            return
        if v is None or not v.startswith("?"):
            self.store.put(k, v)
            return
        query, *bounds = v[1:].split(":")
        low, high = (*(b or None for b in bounds), None, None)[:2]
        found = {
            "range": lambda: self.store.range(low, high),
            "reverse": lambda: self.store.reverse_range(low, high),
            "prefix": lambda: self.store.prefix_scan(bounds[0]),
            "all": self.store.all,
        }[query]()
        self.forward(r, "".join(f"{key}={value};" for key, value in found))


class CaseProcessor(_Steps, Processor[Any, Any]):
    """What ``process`` of a case does."""


class CaseFixedKeyProcessor(_Steps, FixedKeyProcessor[Any, Any]):
    """What ``processValues`` of a case does."""


class PutProcessor(Processor[Any, Any]):
    """Keeps a global or read-only store up to date."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.name = spec["store"]
        self.spec = spec

    def process(self, record: Record[Any, Any]) -> None:
        throw_at(self.spec, "throw_at", record.key, record.value)
        if record.key is None:
            return
        store = self.context.get_state_store(self.name)
        if store.spec.keeps_headers:
            store.put(record.key, record.value, record.timestamp, record.headers)
        elif store.spec.kind == "timestamped":
            store.put(record.key, record.value, record.timestamp)
        else:
            store.put(record.key, record.value)
