"""Recorded cases with the default cache and with jumps in time; what comes out is what the test driver gives, record by record.

The driver agrees with every recorded case. Other engines then have to agree with the driver where no case was recorded:
with a cache, over jumps in time that are longer than each retention.
"""

from __future__ import annotations

from typing import Any

from compare import sorted_store
from interpreter import interpret
from java_errors import seen_headers
from penstock.errors import PenstockError
from penstock.testing import TopologyTestDriver
from run import feed, written

__all__ = ["CACHE_BYTES", "derived"]

Case = dict[str, Any]
CACHE_BYTES = 10_485_760
JUMP_MS = 10 * 86_400_000
PARTS = 3


def derived(case: Case) -> Case | None:
    """The case with a cache, its inputs in parts with a jump between them; None if it fails or moves the wall clock.

    Queries are left out: what they answer is recorded for the case as it is.
    """
    if "build_error" in case or any("error" in row for rows in case["outputs"] for row in rows):
        return None
    if any("advance_wall_clock_ms" in record for record in case["inputs"]):
        return None
    records = [record for record in case["inputs"] if "query" not in record]
    length = max(1, -(-len(records) // PARTS))
    inputs = [
        {**record, "timestamp": record["timestamp"] + number // length * JUMP_MS}
        for number, record in enumerate(records)
    ]
    config = {**case["config"], "statestore.cache.max.bytes": CACHE_BYTES}
    new = {**case, "inputs": inputs, "config": config}
    run = interpret(new)
    outputs = []
    try:
        with TopologyTestDriver(run.topology, {"application.id": "app", **run.config}, batch_size=1_000_000) as driver:
            run.running["driver"] = driver
            if run.refused is not None:
                driver.refuse(run.refusal)
            for record in inputs:
                run.side.clear()
                feed(driver, run, record)
                driver.flush()
                outputs.append([_as_recorded(row) for row in written(driver, run)])
            stores = {name: sorted_store(run.dump_store(driver, name)) for name in case["stores"]}
            return {**new, "outputs": outputs, "stores": stores, "dropped_records": driver.dropped_records}
    except PenstockError:
        return None


def _as_recorded(row: dict[str, Any]) -> dict[str, Any]:
    """A row as a case has it: of the traceback in a dead letter's headers only the last line."""
    headers = row.get("headers")
    return {**row, "headers": seen_headers(headers, headers)} if headers else row
