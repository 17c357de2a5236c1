"""Suppressed tables and cogroups of a case."""

from __future__ import annotations

from dataclasses import replace

import functions as fns
from penstock.api.windowed.suppressed import BufferConfig, Suppressed
from things import Operators, Spec, Thing

__all__ = ["SuppressOperators"]


class SuppressOperators(Operators):
    """``suppress`` and ``cogroup``."""

    def op_suppress(self, n: Spec) -> Thing:
        x = self.source(n)
        buffer = _buffer(n["buffer"])
        if n["until"] == "window_closes":
            suppressed = Suppressed.until_window_closes(buffer)
        else:
            suppressed = Suppressed.until_time_limit(n["limit_ms"], buffer)
        if "name" in n:
            suppressed = suppressed.with_name(n["name"])
        return replace(x, it=x.it.suppress(suppressed))

    def op_cogroup(self, n: Spec) -> Thing:
        things = [self.things[one] for one in n["in"]]
        fn, *others = (fns.aggregator(f) for f in n["fns"])
        cogrouped = things[0].it.cogroup(fn)
        for thing, aggregator in zip(things[1:], others, strict=True):
            cogrouped = cogrouped.cogroup(thing.it, aggregator)
        return replace(things[0], it=cogrouped)


def _buffer(b: Spec) -> BufferConfig:
    buffer = BufferConfig.unbounded()
    if "max_records" in b:
        buffer = buffer.with_max_records(b["max_records"])
    if "max_bytes" in b:
        buffer = buffer.with_max_bytes(b["max_bytes"])
    return buffer.emit_early_when_full() if b.get("when_full") == "emit_early" else buffer.shut_down_when_full()
