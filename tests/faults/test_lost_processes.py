"""A process of Spark's dies that it cannot replace: the query ends, and the application starts it again."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from eventually import eventually
from fault_app import settings, topology
from harness import append, outputs, prepare, results
from penstock import KafkaStreams
from penstock.engines.kafka_streams import State

PATIENCE_S = 240


def planner() -> psutil.Process:
    """The process in which Spark runs the driver's side of a Python source; those of earlier queries may still end."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if child.name() == "python_streamin":  # as long as Linux has names, of a fork of the workers' daemon
                found.append(child)
    return max(found, key=lambda each: each.create_time())


def written(root: Path) -> int:
    return sum(sum(found.values()) for found in outputs(root)["counts"])


def test_the_query_goes_on(spark: Any, done: Any, tmp_path: Path) -> None:
    prepare(tmp_path)
    app = KafkaStreams(topology(), settings(tmp_path), session=spark)
    states: list[str] = []
    app.set_state_listener(lambda new, _: states.append(new.value))
    with app:
        facts = lambda: (written(tmp_path), app.state, app.error)  # noqa: E731
        eventually(lambda: written(tmp_path) >= 120 and app.state is State.RUNNING, PATIENCE_S, facts=facts)
        planner().kill()
        append(tmp_path, 60, 30)
        eventually(lambda: written(tmp_path) >= 180, PATIENCE_S, facts=facts)
    assert app.error is None
    assert states[:4] == ["REBALANCING", "RUNNING", "REBALANCING", "RUNNING"]
    assert results(tmp_path) == done
