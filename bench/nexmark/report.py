"""The figures of a run in one table: python bench/nexmark/report.py [RESULTS]

Ratios are Penstock's figure by the peer's: a rate is better above 1, CPU time below. "Warm" compares with the peer's rate behind the
first third of its records, when Java's compiler has done most of its work. "Per core" is events a CPU second behind the first record,
so that what a peer leaves of the two cores does not count against it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

COLUMNS = (
    "query", "events/s", "Kafka Streams", "ratio", "warm", "whole", "µs of CPU", "Kafka Streams", "ratio", "Flink", "per core to Flink",
)  # fmt: skip
STEADY, WARM, WHOLE = "steady_records_per_s", "warm_records_per_s", "whole_records_per_s"
CPU = "cpu_s_per_million_after_start"


def rows(results: list[dict[str, Any]]) -> list[list[str]]:
    """A row for each query."""
    good = {(row["query"], row["peer"]): row for row in results if row["ok"]}
    queries = sorted({query for query, _ in good}, key=lambda query: int(query[1:]))
    return [
        _row(query, *(good.get((query, peer), {}) for peer in ("penstock", "kstreams", "flink"))) for query in queries
    ]


def _row(query: str, ours: dict[str, Any], kafka: dict[str, Any], flink: dict[str, Any]) -> list[str]:
    return [
        query, _thousands(ours.get(STEADY)), _thousands(kafka.get(STEADY)), _ratio(ours, kafka, STEADY), _ratio(ours, kafka, WARM, STEADY),
        _ratio(ours, kafka, WHOLE), _one(ours.get(CPU)), _one(kafka.get(CPU)), _ratio(ours, kafka, CPU), _one(flink.get(CPU)),
        _ratio(flink, ours, CPU),
    ]  # fmt: skip


def _ratio(one: dict[str, Any], other: dict[str, Any], figure: str, own: str = "") -> str:
    first, second = one.get(own or figure), other.get(figure)
    return f"{first / second:.2f}" if first and second else "-"


def _thousands(number: float | None) -> str:
    return "-" if number is None else f"{number:,}"


def _one(number: float | None) -> str:
    return "-" if number is None else f"{number:.1f}"


def markdown(results: list[dict[str, Any]]) -> str:
    """The table in Markdown."""
    lines = [COLUMNS, ["---", *["---:"] * (len(COLUMNS) - 1)], *rows(results)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    results = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "results" / "nexmark.json"
    print(markdown(json.loads(results.read_text())["results"]))


if __name__ == "__main__":
    main()
