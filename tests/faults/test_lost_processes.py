"""A process of Spark's dies that it cannot replace: the query ends, and the application starts it again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil

from fault_app import settings, topology
from harness import append, checkpoint_of, outputs, prepare, results
from penstock import KafkaStreams

PATIENCE_S = 120


def planner() -> psutil.Process:
    """The process in which Spark runs the driver's side of a Python source."""
    return next(p for p in psutil.Process().children(recursive=True) if "python_streaming_source" in str(p.cmdline()))


def wait_for(root: Path, records: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while sum(sum(found.values()) for found in outputs(root)["counts"]) < records:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_query_goes_on(spark: Any, done: Any, tmp_path: Path) -> None:
    prepare(tmp_path)
    app = KafkaStreams(topology(), settings(tmp_path), session=spark)
    states: list[str] = []
    app.set_state_listener(lambda new, _: states.append(new.value))
    with app:
        wait_for(tmp_path, 120)
        planner().kill()
        append(tmp_path, 60, 30)
        wait_for(tmp_path, 180)
        commits = checkpoint_of(tmp_path) / "spark" / "commits"
        newest = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        assert newest > 0
    assert app.error is None
    assert states[:4] == ["REBALANCING", "RUNNING", "REBALANCING", "RUNNING"]
    assert results(tmp_path) == done
