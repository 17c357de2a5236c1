"""A join of two streams, record by record, written down a second time: what the operators are held to."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

NOTHING = (1 << 63) - 1


@dataclass
class Windows:
    before: int
    after: int
    grace: int
    waits: bool = True


@dataclass
class Store:
    """A window store with duplicates: rows are kept for the retention, behind the largest time put."""

    retention: int
    persistent: bool
    rows: list = field(default_factory=list)
    observed: int = -1
    dropped: int = 0

    def put(self, key, value, time):
        if value is None and self.persistent:
            return
        self.observed = max(self.observed, time)
        segment = max(self.retention // 2, 60_000)
        if self.persistent:
            live = time // segment >= (self.observed - self.retention) // segment
        else:
            live = time > self.observed - self.retention
        if not live:
            self.dropped += 1
        elif value is not None:
            self.rows.append((key, time, value))

    def fetch(self, key, low, high):
        low = max(low, self.observed - self.retention + 1)
        return sorted(((t, v) for k, t, v in self.rows if k == key and low <= t <= high), key=lambda row: row[0])


class Model:
    """Kafka's KStreamKStreamJoin."""

    def __init__(self, kind, windows, *, persistent=True, interval=0):
        retention = windows.before + windows.after + windows.grace
        self.stores = {"l": Store(retention, persistent), "r": Store(retention, persistent)}
        self.windows, self.interval = windows, interval
        self.outer = {"l": kind != "inner", "r": kind == "outer"}
        self.waiting = defaultdict(list) if kind != "inner" and windows.waits else None
        self.stream_time, self.smallest, self.next_emit, self.now = -1, NOTHING, 0, 0
        self.out, self.dropped = [], 0

    def process(self, side, key, value, time):
        other = "r" if side == "l" else "l"
        self._join(side, other, key, value, time)
        if key is not None:
            self.stores[side].put(key, value, time)

    def total_dropped(self):
        return self.dropped + sum(store.dropped for store in self.stores.values())

    def _send(self, key, left, right, time):
        self.out.append((key, f"{left}/{right}", time))

    def _pair(self, side, key, mine, other, time):
        self._send(key, *((mine, other) if side == "l" else (other, mine)), time)

    def _join(self, side, other, key, value, time):
        self.stream_time = max(self.stream_time, time)
        if self.outer[side] and key is None and value is not None:
            self._pair(side, key, value, None, time)
            return
        if key is None or value is None:
            self.dropped += 1
            return
        windows = self.windows
        before, after = (windows.before, windows.after) if side == "l" else (windows.after, windows.before)
        if time == self.stream_time and self.waiting is not None:
            self._release(after)
        low, high = max(0, time - before), max(0, time + after)
        found = self.stores[other].fetch(key, low, high)
        for other_time, other_value in found:
            if self.waiting is not None:
                self.waiting.pop((other_time, other == "l", key), None)
            self._pair(side, key, value, other_value, max(time, other_time))
        if self.outer[side] and not found:
            if self.waiting is None or high < self.stream_time:
                self._pair(side, key, value, None, time)
            else:
                self.smallest = min(self.smallest, time)
                self.waiting[time, side == "l", key].append(value)

    def _release(self, after):
        limit = self.smallest + after + self.windows.grace
        if limit >= 1 << 63:
            limit -= 1 << 64
        if limit >= self.stream_time or self.now < self.next_emit:
            return
        self.next_emit = self.now + self.interval
        self.smallest = NOTHING
        is_open = {True: False, False: False}
        entries = [(*row, value) for row in sorted(self.waiting) for value in self.waiting[row]]
        for time, is_left, key, value in entries:
            self.smallest = time
            if all(is_open.values()):
                break
            look_back = self.windows.after if is_left else self.windows.before
            if time + look_back + self.windows.grace >= self.stream_time:
                is_open[is_left] = True
                continue
            self._send(key, *((value, None) if is_left else (None, value)), time)
            self.waiting.pop((time, is_left, key), None)
