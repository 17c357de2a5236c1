"""ShuffleBench over a broker, Penstock beside Kafka Streams in Java and PySpark's Structured Streaming; results and states are compared with Polars' matches.

python bench/shufflebench/run.py [--n 1000000] [--guarantees alo eos] [--commit-ms 5000] [--peers penstock] [--merge]

Records of 1 KB are read from a topic of four partitions by two threads, at least once and exactly once, all else at its default.
The benchmark commits every five seconds at most. suite_run.py says how rates are measured. Structured Streaming writes at least
once only, and has no changelog: its program writes what states are left when all is over.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).parents[1]))

import suite_run
from datasets import PARTITIONS
from shufflebench import shuffle


class ShuffleBench:
    """The records in their topic, and the matches."""

    name = "shufflebench"
    peers = ("penstock", "kstreams", "structured")
    not_in: Mapping[str, Sequence[str]] = {}
    made_anew: Mapping[str, Sequence[str]] = {}

    def __init__(self, count: int) -> None:
        self._count = count

    @cached_property
    def _matches(self) -> pl.DataFrame:
        return shuffle.matches(self._count)

    def load(self, bootstrap: str) -> None:
        suite_run.write(bootstrap, "shufflebench-records", shuffle.rows(self._count, PARTITIONS))

    def records(self, workload: str) -> int:  # noqa: ARG002 - there is one
        return self._count

    def environment(self, workload: str) -> dict[str, str]:  # noqa: ARG002
        return {"TOPIC_RECORDS": "shufflebench-records", "RULES": json.dumps(shuffle.rules_of_ranges())}

    def check(self, workload: str, written: suite_run.Written) -> tuple[int, str]:  # noqa: ARG002
        changelog = written.read(f"{written.application}-{shuffle.STORE}-changelog")
        return shuffle.compared(self._matches, written.out, changelog)


def main() -> None:
    parser = suite_run.parser(__doc__, ["shuffle"], n=1_000_000, peers=ShuffleBench.peers)
    parser.set_defaults(guarantees=["alo", "eos"])
    given = suite_run.arguments(parser)
    suite_run.main(ShuffleBench(given.n), given)


if __name__ == "__main__":
    main()
