"""Windows, sessions and joins over inputs whose time jumps by more than any of them keeps: cases for all engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

__all__ = ["COUNTS", "JOINS", "gap_cases", "join_cases"]

Spec = dict[str, Any]

SIZE_MS, GRACE_MS = 60_000, 10_000
WINDOWS: dict[str, Spec] = {
    "tumbling": {"type": "tumbling", "size_ms": SIZE_MS, "grace_ms": GRACE_MS},
    "hopping": {"type": "hopping", "size_ms": SIZE_MS, "grace_ms": GRACE_MS, "advance_ms": 20_000},
    "sliding": {"type": "sliding", "size_ms": SIZE_MS, "grace_ms": GRACE_MS},
    "session": {"type": "session", "gap_ms": SIZE_MS, "grace_ms": GRACE_MS},
}
SINKS = ("update", "close", "suppress", "limit")
COUNTS = [(window, sink) for window in WINDOWS for sink in SINKS]
JOINS = ("inner", "left", "outer")
# Most steps stay within a window, some go beyond it, some beyond every retention and every segment of a store.
STEPS = st.one_of(
    st.integers(0, 30_000), st.integers(0, 30_000), st.integers(60_000, 100_000), st.integers(130_000, 900_000)
)
INTERVALS = {
    "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": 0,
    "__emit.interval.ms.kstreams.windowed.aggregation__": 0,
}


@st.composite
def gap_cases(draw: Callable[[Any], Any], window: str, sink: str) -> Spec:
    """Counts in windows; ``sink``: what leaves them."""
    emit = {"emit": "on_window_close"} if sink == "close" else {}
    topology: list[Spec] = [
        {"id": "s", "op": "stream", "topic": "in"},
        {"id": "g", "op": "groupByKey", "in": "s"},
        {"id": "w", "op": "windowedBy", "in": "g", "window": WINDOWS[window], **emit},
        {"id": "c", "op": "count", "in": "w", "store": "counts"},
    ]
    last = "c"
    if sink in ("suppress", "limit"):
        until = {"until": "window_closes"} if sink == "suppress" else {"until": "time_limit", "limit_ms": 30_000}
        topology.append({"id": "x", "op": "suppress", "in": "c", **until, "buffer": {}})
        last = "x"
    topology += [{"id": "t", "op": "toStream", "in": last}, {"id": "o", "op": "to", "in": "t", "topic": "out"}]
    key = "session<string>" if window == "session" else "windowed<string>"
    out = {"key": key, "value": "long", **({} if window == "session" else {"window_size_ms": SIZE_MS})}
    topics = {"in": {"key": "string", "value": "string"}, "out": out}
    return _case(topology, topics, _records(draw, ["in"]))


@st.composite
def join_cases(draw: Callable[[Any], Any], kind: str) -> Spec:
    """Joins of two streams."""
    window = {"before_ms": 20_000, "after_ms": 40_000, "grace_ms": GRACE_MS}
    topology: list[Spec] = [
        {"id": "l", "op": "stream", "topic": "left"},
        {"id": "r", "op": "stream", "topic": "right"},
        {"id": "j", "op": "join", "kind": kind, "in": ["l", "r"], "fn": {"name": "pair"}, "window": window},
        {"id": "o", "op": "to", "in": "j", "topic": "out"},
    ]
    topics = {name: {"key": "string", "value": "string"} for name in ("left", "right", "out")}
    return _case(topology, topics, _records(draw, ["left", "right"]))


def _case(topology: list[Spec], topics: Spec, inputs: list[Spec]) -> Spec:
    return {"name": "gaps", "config": dict(INTERVALS), "topics": topics, "topology": topology, "inputs": inputs}


def _records(draw: Callable[[Any], Any], topics: list[str]) -> list[Spec]:
    """Records in order of time but for some, each with a value of its own."""
    records, now = [], 0
    for number in range(draw(st.integers(1, 14))):
        now += draw(STEPS)
        back = draw(st.sampled_from((0, 0, 0, 5_000, 40_000, 75_000)))
        records.append(
            {
                "topic": draw(st.sampled_from(topics)),
                "key": draw(st.sampled_from(("a", "b"))),
                "value": f"v{number}",
                "timestamp": max(0, now - back),
            }
        )
    return records
