"""Random writes to stores of every kind, and their contents as far as anybody can see them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock import Serdes
from penstock.serde.windowed import Window, Windowed
from penstock.state.maps import ByteMap, MemoryMap
from penstock.state.views import AggregationWithHeaders, ValueTimestampHeaders
from penstock.state.views.change_buffer import BufferedChange, ChangeBufferView
from penstock.state.views.join_buffers import OuterJoinView, RecordBufferView, WaitingRecord
from penstock.state.views.retention import Retention
from penstock.topology.stores import StoreKind, StoreSpec

KEYS = ["a", "ab", "b", "a\x00", "z" * 600]


def _spec(name: str, kind: StoreKind, **facts: Any) -> StoreSpec:
    return StoreSpec(name, kind, Serdes.string(), Serdes.string(), **facts)


WINDOWS: dict[str, Any] = {"window_size_ms": 1_000, "retention_ms": 150_000}
SPECS = [
    _spec("plain", "key_value"),
    _spec("table", "timestamped"),
    _spec("expiring", "key_value", ttl_ms=60_000),
    _spec("lru", "lru", max_entries=3),
    _spec("windows", "window", timestamped=True, **WINDOWS),
    _spec("windows-in-memory", "window", persistent=False, **WINDOWS),
    _spec("duplicates", "window", retain_duplicates=True, **WINDOWS),
    _spec("sessions", "session", retention_ms=150_000),
    _spec("versions", "versioned", history_ms=60_000),
    _spec("suppressed", "buffer"),
    _spec("waiting", "record_buffer"),
    _spec("unmatched", "outer_join"),
    _spec("table-with-headers", "timestamped", timestamped=True, keeps_headers=True),
    _spec("lru-with-headers", "lru", max_entries=3, keeps_headers=True),
    _spec("windows-with-headers", "window", timestamped=True, keeps_headers=True, **WINDOWS),
    _spec("sessions-with-headers", "session", retention_ms=150_000, keeps_headers=True),
    _spec("suppressed-with-headers", "buffer", keeps_headers=True),
]


def write(spec: StoreSpec, view: Any, dice: random.Random, now: int) -> None:
    """One random write; the same for the same dice, view contents and time."""
    key, value = dice.choice(KEYS), None if dice.random() < 0.3 else str(dice.randrange(1000))
    time = max(now - dice.choice([0, 0, 500, 30_000, 200_000]), 0)
    headers = (("h", b"1"), ("n", None)) if spec.keeps_headers and dice.random() < 0.5 else ()
    entry = None if value is None else ValueTimestampHeaders(value, time, headers)
    match spec.kind:
        case "timestamped" if spec.keeps_headers:
            view.put(key, entry)
        case "window" if spec.keeps_headers:
            view.put(key, entry, time // 1000 * 1000)
        case "key_value":
            view.put(key, value)
        case "lru":
            if dice.random() < 0.3:
                view.get(key)
            else:
                view.put(key, entry if spec.keeps_headers else value)
        case "timestamped" | "versioned":
            view.put(key, value, time)
        case "window" if spec.timestamped:
            view.put(key, value, time // 1000 * 1000, time)
        case "window":
            view.put(key, value, time // 1000 * 1000)
        case "session":
            session = Windowed(key, Window(max(time - dice.choice([0, 700]), 0), time))
            view.put(session, AggregationWithHeaders(value, headers) if spec.keeps_headers else value)
        case _:
            _wait(view, key.encode(), (value or "").encode(), now, dice)


def _wait(view: Any, key: bytes, value: bytes, now: int, dice: random.Random) -> None:
    if isinstance(view, ChangeBufferView):
        before = view.get(key)
        if before is not None and dice.random() < 0.5:
            view.remove(key, before)
            return
        headers = (("h", b"1"), ("n", None)) if dice.random() < 0.5 else ()
        time = now if before is None else before.time
        change = BufferedChange(time, now, b"in", 0, 7, headers, b"p", dice.choice([b"p", b"o", None]), value)
        view.put(key, change, before)
    elif isinstance(view, RecordBufferView):
        view.observe(now)
        view.add([WaitingRecord(now, key, value, (("h", b"1"),), "in", 0, 9)])
        if dice.random() < 0.3:
            view.take_until(now - 5_000)
    elif isinstance(view, OuterJoinView):
        waiting = [each.row for each in view.waiting()]
        matched = dice.sample(waiting, min(len(waiting), dice.choice([0, 1])))
        if key:  # Kafka's streams have no records without a key in joins
            rows = [now.to_bytes(8, "big") + bytes([dice.randrange(2)]) + key] * dice.choice([1, 1, 2])
            values = pa.array([value] * len(rows), pa.large_binary())
            view.apply(matched, pa.array(rows, pa.large_binary()), values)


def contents(spec: StoreSpec, rows: ByteMap, meta: Mapping[str, int]) -> Any:
    """The rows that count: not those that have expired; keys that were used last only in their order."""
    found = dict(rows.scan())
    if spec.kind in ("window", "session"):
        unit = spec.window_size_ms if spec.kind == "window" else 0
        first = Retention(spec, MemoryMap(), dict(meta), unit).first_bucket
        return {row: value for row, value in found.items() if int.from_bytes(row[:8], "big") >= first}
    if spec.kind == "lru":
        assert max((int.from_bytes(row[1:], "big") for row in found if row[:1] == b"\x01"), default=-1) < meta.get(
            f"{spec.name}/next-use", 0
        )
        return [(key, found[b"\x00" + key][8:]) for row, key in sorted(found.items()) if row[:1] == b"\x01"], len(found)
    return found
