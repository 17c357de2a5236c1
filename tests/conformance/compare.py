"""Comparing what Penstock did with what the Java library did."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

__all__ = ["by_topic", "first_difference", "sorted_store"]

Row = dict[str, Any]


def by_topic(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows grouped by topic; peeks and foreachs count as topics of their own."""
    grouped: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row["topic"]].append({k: v for k, v in row.items() if k != "topic"})
    return dict(grouped)


def sorted_store(rows: list[Row]) -> list[Row]:
    """Rows of a store in the order of the recorded ones."""

    def rank(row: Row) -> tuple[Any, ...]:
        key = row["key"]
        plain, start = (key["key"], key["start"]) if isinstance(key, dict) else (key, 0)
        return str(plain), start, row.get("start", 0), row.get("end", 0), row.get("timestamp", 0)

    return sorted(rows, key=rank)


def first_difference(what: str, expected: Any, actual: Any) -> str | None:
    """None when both are equal, else where they first differ."""
    if expected == actual:
        return None
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted({*expected, *actual}):
            found = first_difference(f"{what}[{key}]", expected.get(key), actual.get(key))
            if found:
                return found
    if isinstance(expected, list) and isinstance(actual, list):
        for i, (e, a) in enumerate(zip(expected, actual, strict=False)):
            found = first_difference(f"{what}[{i}]", e, a)
            if found:
                return found
        longer = expected if len(expected) > len(actual) else actual
        kind = "missing" if longer is expected else "too many"
        at = min(len(expected), len(actual))
        return f"{what}: {kind} from [{at}]: {longer[at]!r}"
    return f"{what}: expected {expected!r}, got {actual!r}"
