"""What a soak has shown, in numbers."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from statistics import median
from typing import Any

MOST_TEXT = 300


def summary_of(
    rounds: list[dict[str, Any]], problems: list[str], totals: dict[str, int], arguments: str, judged: str
) -> dict[str, Any]:
    """The result as plain data: faults by kind with the times until outputs came again, records, problems."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in rounds:
        kinds.setdefault(row["fault"], []).append(row)
    return {
        "command": f'make soak ARGS="{arguments}"',
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "rounds": len(rounds),
        "seconds_of_rounds": round(sum(row["seconds"] for row in rounds)),
        "judged": judged,
        "machine": {"cpus": os.cpu_count(), "system": platform.system(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("pyspark", "confluent-kafka", "kafka-python")},
        "totals": totals,
        "faults": {name: _kind(found) for name, found in sorted(kinds.items())},
        "problems": [problem[:MOST_TEXT] for problem in problems],
    }


def _kind(rows: list[dict[str, Any]]) -> dict[str, Any]:
    took = [row["works_again_after_s"] for row in rows if row["works_again_after_s"] is not None]
    return {
        "rounds": len(rows),
        "worked_again": len(took),
        "median_s_until_outputs": median(took) if took else None,
        "longest_s_until_outputs": max(took, default=None),
    }
