"""A process of Spark's dies that it cannot replace: the query ends, and the application starts it again."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from fault_app import settings, topology
from harness import append, outputs, prepare, results
from penstock import KafkaStreams

PATIENCE_S = 240


def planner() -> psutil.Process:
    """The process in which Spark runs the driver's side of a Python source; those of earlier queries may still end."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "python_streaming_source" in " ".join(child.cmdline()):
                found.append(child)
    return max(found, key=lambda each: each.create_time())


def wait_for(root: Path, records: int, app: KafkaStreams) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (written := sum(sum(found.values()) for found in outputs(root)["counts"])) < records:
        assert time.monotonic() < deadline, (written, app.state, app.error)
        time.sleep(0.05)


def test_the_query_goes_on(spark: Any, done: Any, tmp_path: Path) -> None:
    prepare(tmp_path)
    app = KafkaStreams(topology(), settings(tmp_path), session=spark)
    states: list[str] = []
    app.set_state_listener(lambda new, _: states.append(new.value))
    with app:
        wait_for(tmp_path, 120, app)
        planner().kill()
        append(tmp_path, 60, 30)
        wait_for(tmp_path, 180, app)
    assert app.error is None
    assert states[:4] == ["REBALANCING", "RUNNING", "REBALANCING", "RUNNING"]
    assert results(tmp_path) == done
