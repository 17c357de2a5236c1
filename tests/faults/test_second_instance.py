"""One application, two instances: the second is refused and told who runs, the first does not notice."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from eventually import eventually
from fault_app import settings, topology
from harness import append, outputs, prepare, results, run_captured, run_here
from penstock import KafkaStreams


def written(root: Path) -> int:
    return sum(sum(counter.values()) for counter in outputs(root)["counts"])


def test_a_second_instance_is_refused(tmp_path: Path, spark: Any) -> None:
    prepare(tmp_path)
    first = KafkaStreams(topology(), settings(tmp_path), session=spark)
    first.start()
    try:
        eventually(lambda: written(tmp_path) == 120)
        second = run_captured(tmp_path)
        assert second.returncode == 1
        assert "FencedError: application 'faulty' runs already" in second.stderr
        assert f"{socket.gethostname()}:{os.getpid()} (process {os.getpid()} on " in second.stderr
        assert "stop that instance first" in second.stderr
        assert "pyspark" not in second.stderr  # it did not come to that
        append(tmp_path, 60, 30)
        eventually(lambda: written(tmp_path) == 180)
        assert first.error is None
    finally:
        assert first.close()
    calm = tmp_path / "calm"
    calm.mkdir()
    prepare(calm)
    append(calm, 60, 30)
    run_here(calm, spark)
    assert results(tmp_path) == results(calm)
