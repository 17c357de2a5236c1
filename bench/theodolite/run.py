"""Theodolite's use cases over a broker, Penstock beside Kafka Streams in Java, each answer compared with Polars'.

python bench/theodolite/run.py [--n 1000000] [--workloads uc1 uc4] [--guarantees eos alo] [--peers penstock kstreams] [--merge]

Records of Avro are read from topics of four partitions by two threads, exactly once, all else at its default. uc3, where each
record is in 24 windows, reads an eighth of them, and uc4, whose groups come back as records, half. Rates are records of sensors;
suite_run.py says how they are measured.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).parents[1]))

import suite_run
from theodolite import answers, cases
from theodolite.sensors import Plant

GROUPS = "theodolite-groups"


@cache
def expected(case: str, plant: Plant) -> pl.DataFrame:
    return answers.ANSWERS[case](plant)


class Theodolite:
    """The plants of the use cases, and their records in topics."""

    name = "theodolite"
    not_in: Mapping[str, Sequence[str]] = {}
    made_anew: Mapping[str, Sequence[str]] = {"uc4": ("feedback",)}

    def __init__(self, count: int, chosen: Sequence[str]) -> None:
        plain = Plant(count)
        plants = {"uc1": plain, "uc2": plain, "uc3": Plant(count // 8, 100, slow_by=600), "uc4": Plant(count // 2)}
        self._plants = {case: plants[case] for case in chosen}

    def load(self, bootstrap: str) -> None:
        for plant in set(self._plants.values()):
            records = ((key, value, -1, at) for key, value, at in plant.records())
            suite_run.write(bootstrap, self._topic(plant), records)
        if "uc4" in self._plants:
            groups = ((key, value, -1, at) for key, value, at in self._plants["uc4"].group_records())
            suite_run.write(bootstrap, GROUPS, groups)

    @staticmethod
    def _topic(plant: Plant) -> str:
        return f"theodolite-power-{plant.count}"

    def records(self, workload: str) -> int:
        return self._plants[workload].count

    def environment(self, workload: str) -> dict[str, str]:
        return {"TOPIC_POWER": self._topic(self._plants[workload]), "TOPIC_GROUPS": GROUPS}

    def check(self, workload: str, written: suite_run.Written) -> tuple[int, str]:
        return answers.compared(workload, expected(workload, self._plants[workload]), written.out)


def main() -> None:
    given = suite_run.arguments(suite_run.parser(__doc__, list(cases.CASES), n=1_000_000))
    suite_run.main(Theodolite(given.n, given.workloads), given)


if __name__ == "__main__":
    main()
