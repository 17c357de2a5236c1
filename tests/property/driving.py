"""Runs a case in the test driver, in given batches, and compares two runs as far as they have to agree."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))

from agreement import Agreement

from batches import cut
from compare import by_topic, first_difference, sorted_store
from interpreter import Interpreted
from penstock.testing import TopologyTestDriver
from run import feed, written

__all__ = ["Outcome", "differences", "drive"]

Spec = dict[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What a run gave."""

    outputs: dict[str, list[Row]]
    stores: dict[str, list[Row]]
    dropped: int


def drive(
    case: Spec, run: Interpreted, split: int | None = None, *, by_column: bool = False, cache_bytes: int = 0
) -> Outcome:
    """The whole case.

    Args:
        case: The case.
        run: Its topology.
        split: Seed of the batches; None: one record a batch.
        by_column: Even single records by column.
        cache_bytes: ``statestore.cache.max.bytes``.
    """
    config = {"application.id": "app", **run.config, "statestore.cache.max.bytes": cache_bytes}
    run.side.clear()
    with TopologyTestDriver(run.topology, config, batch_size=1_000_000, by_column=by_column) as driver:
        for batch in cut(case["inputs"], split):
            for i in batch:
                feed(driver, run, case["inputs"][i])
            driver.flush()
        stores = {name: sorted_store(run.dump_store(driver, name)) for name in dict.fromkeys(run.stores)}
        return Outcome(by_topic(written(driver, run)), stores, driver.dropped_records)


def differences(
    outputs: dict[str, Agreement], stores: dict[str, Agreement], expected: Outcome, actual: Outcome
) -> list[str]:
    """Where two runs differ although they should agree.

    Args:
        outputs: How far topics agree.
        stores: How far stores agree.
        expected: The one.
        actual: The other.
    """
    found = []
    for topic, level in outputs.items():
        one, other = expected.outputs.get(topic, []), actual.outputs.get(topic, [])
        found.append(first_difference(f"topic {topic}", _agreeing(one, level), _agreeing(other, level)))
    for store, level in stores.items():
        if level == Agreement.NONE:
            continue
        one, other = expected.stores[store], actual.stores[store]
        if level == Agreement.AT_LEAST:
            other = [row for row in other if row in one]
        found.append(first_difference(f"store {store}", _agreeing(one, level), _agreeing(other, level)))
    levels = [*outputs.values(), *stores.values()]
    if all(level == Agreement.EXACT for level in levels):
        found.append(first_difference("dropped records", expected.dropped, actual.dropped))
    return [text for text in found if text]


def _agreeing(rows: list[Row], level: Agreement) -> Any:
    if level >= Agreement.AT_LEAST:
        return rows
    if level == Agreement.NONE:
        return None
    last = {repr((row["key"], row.get("start"), row.get("end"))): row["value"] for row in rows}
    nothing = (None, 0) if level == Agreement.FINAL_OR_ZERO else (None,)
    return {key: value for key, value in last.items() if value not in nothing}
