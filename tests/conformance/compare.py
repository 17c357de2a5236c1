"""Comparing what Penstock did with what the Java library did."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

__all__ = [
    "LeftOut",
    "by_topic",
    "comparable",
    "first_difference",
    "is_of_the_driver",
    "newest",
    "sorted_store",
    "timeless",
]

Row = dict[str, Any]


class LeftOut(Exception):  # noqa: N818 - it is not an error
    """The case cannot be compared with this engine."""


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


def is_of_the_driver(case: dict[str, Any]) -> bool:
    """Whether the record holds, beyond final values, what depends on the Java driver's interleaving or cache.

    Aggregations that keep their history ("trace") show each change. A serde that looks at headers is given those of the
    task's last record when a store is read: the driver's one task may have seen another record last.
    """
    operators = {n["op"] for n in case["topology"]}
    if "stamped" in json.dumps(case["topology"]):
        return True
    if "fkJoin" in operators and operators & {"aggregate", "count", "reduce"}:
        return True  # what is folded there includes results that another interleaving does not have
    is_cached = int(case["config"].get("statestore.cache.max.bytes", 0)) > 0
    return is_cached and "trace" in json.dumps(case["topology"])


def comparable(value: Any) -> Any:
    """The Java driver's wall clock stands at 0, and internal topics have no offsets of a broker."""
    if not isinstance(value, str):
        return value
    return re.sub(r"(\|app-[^|:]*:\d+):\d+", r"\1", re.sub(r"\|wt=\d+", "|wt=0", value))


def timeless(value: Any) -> Any:
    """Without the stream time that a processor has noted: the Java driver runs all sub-topologies as one task."""
    return re.sub(r"\|st=\d+", "|st", value) if isinstance(value, str) else value


def newest(rows: list[Row], *, timed: bool) -> list[Row]:
    """The last record of each key, unless that says that there is nothing (more): then it need never have been there.

    When changes are cached, a value may come back to what it was within a batch, and nobody is told of the time.
    """
    newest: dict[str, Row] = {}
    for row in rows:
        newest[json.dumps(row["key"], sort_keys=True)] = row
    kept = [newest[key] for key in sorted(newest) if newest[key]["value"] is not None]
    return kept if timed else [{name: value for name, value in row.items() if name != "timestamp"} for row in kept]
