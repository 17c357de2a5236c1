"""One application, two instances: the second is refused and told who runs, the first does not notice."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from fault_app import settings, topology
from harness import append, outputs, prepare, results, run_captured, run_here
from penstock import KafkaStreams, StreamsBuilder
from penstock.base.clock import unix_ms
from penstock.engines.application import application_lease
from penstock.errors import FencedError
from penstock.log.base import Lease
from penstock.log.open import open_log


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


class SlowToShip:
    """A function of the topology that is pickled only when it may be, which a start does after it has the lease."""

    def __init__(self, may_go: threading.Event | None = None) -> None:
        self.may_go = may_go

    def __call__(self, value: str) -> str:
        return value.upper()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.may_go is not None:
            assert self.may_go.wait(240)
        return SlowToShip, ()


TTL_MS = 3_000


def has_beaten(lease: Lease | None, beats: int) -> bool:
    """Whether a lease has been kept for so many beats, a quarter of its time to live each, and just now."""
    if lease is None or lease.heartbeat_ms - lease.since_ms < beats * TTL_MS / 5:
        return False
    return unix_ms() - lease.heartbeat_ms < TTL_MS / 3


@pytest.mark.parametrize("mode", ["micro_batch", "continuous"])
def test_a_second_instance_is_refused_while_the_first_one_starts(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(application_lease, "LEASE_TTL_MS", TTL_MS)
    builder = StreamsBuilder()
    may_go = threading.Event()
    builder.stream("in").map_values(SlowToShip(may_go)).to("out")
    config = {
        "application.id": "slow",
        "bootstrap.servers": f"sqlite:///{tmp_path / 'log.db'}",
        "state.dir": str(tmp_path / "state"),
        "processing.mode": mode,
        "default.key.serde": "string",
        "default.value.serde": "string",
    }
    with open_log(config["bootstrap.servers"]) as log:
        log.create_topic("in", 1)
        log.create_topic("out", 1)
        app = KafkaStreams(builder.build(), config, session=spark)
        starting = threading.Thread(target=app.start)
        starting.start()
        try:
            for beats in range(2, 9, 2):  # four beats are as long as the lease lasts without one
                eventually(lambda beats=beats: has_beaten(log.lease("slow"), beats))
                with pytest.raises(FencedError, match="runs already"):
                    log.acquire_lease("slow", "second")
            assert log.lease("slow").owner != "second"  # type: ignore[union-attr]
        finally:
            may_go.set()
            starting.join()
            app.close()
        assert app.error is None
