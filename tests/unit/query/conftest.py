"""A checkpoint that was committed without Spark, and its state."""

from __future__ import annotations

import pytest

from .committed_checkpoint import APP, LONG, SPECS, STRING, Checkpoint, T

__all__ = ["APP", "LONG", "SPECS", "STRING", "Checkpoint", "T", "checkpoint", "state"]


@pytest.fixture
def checkpoint(tmp_path):
    made = Checkpoint(tmp_path)
    yield made
    made.close()


@pytest.fixture
def state(checkpoint):
    with_own_replicas = checkpoint.state()
    yield with_own_replicas
    with_own_replicas.close()
