from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from penstock.log.embedded.log import drop_memory_log
from penstock.log.open import open_log


@pytest.fixture(params=["disk", "memory"])
def log(request, tmp_path):
    """The two users of the seam; one test body for both."""
    name = uuid.uuid4().hex
    with open_log(f"sqlite:///{tmp_path}/log.db" if request.param == "disk" else f"memory://{name}") as opened:
        yield opened
    if request.param == "memory":
        drop_memory_log(name)


@pytest.fixture
def batch():
    def make(values, keys=None, timestamps=None, headers=None):
        count = len(values)
        columns = {
            "timestamp": pa.array(timestamps or [1_000 + i for i in range(count)], pa.int64()),
            "value": pa.array(values, pa.large_binary()),
        }
        if keys is not None:
            columns["key"] = pa.array(keys, pa.large_binary())
        if headers is not None:
            columns["headers"] = headers
        return pa.RecordBatch.from_pydict(columns)

    return make
