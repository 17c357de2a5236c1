"""Random records for the source topics of a case: out of order, late, without key, without value."""

from __future__ import annotations

from typing import Any

from dice import Dice

__all__ = ["random_inputs"]

Spec = dict[str, Any]
WORDS = ("a", "b1", "c22", "d", "ax", "", "hello Join", "to, all", "kafka")
KEYS = ("a", "b", "c", "d")
FLUSH_MS = 60_000


def random_inputs(dice: Dice, case: Spec, *, longest: int = 60) -> list[Spec]:
    """Records in the order in which they arrive."""
    topics = [n["topic"] for n in case["topology"] if "topic" in n and n["op"] in ("stream", "table", "globalTable")]
    step, back = dice.one(1000, 300, 2500), dice.one(2000, 8000)
    disorder, nulls = dice.one(0.15, 0.0, 0.3), dice.one(0.06, 0.0, 0.12)
    now, records = 0, []
    for _ in range(longest):
        if not dice.maybe(0.97):
            break
        topic = dice.of(topics)
        now += dice.number(5) * step // 4
        at = now
        if dice.maybe(disorder):
            at = max(0, now - dice.number(9) * back // 8)
        elif dice.maybe(0.03):
            at = max(0, now - 40_000 - dice.number(3) * 1000)
        is_long = case["topics"][topic]["value"] == "long"
        value = None if dice.maybe(nulls) else dice.number(23) - 3 if is_long else dice.of(WORDS)
        key = None if dice.maybe(nulls / 3) else dice.of(KEYS)
        records.append({"topic": topic, "key": key, "value": value, "timestamp": at})
        if dice.maybe(0.01):
            now += FLUSH_MS
    return records
