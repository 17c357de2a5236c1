"""A replica whose map is nearly full: it grows, whatever is written next."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica
from penstock.state.maps import ReplicaPosition

MAP_BYTES, ROW_BYTES = 32 << 20, 8_000


@pytest.mark.parametrize("rows", range(4066, 4078, 2))  # of two pages each; the list of freed pages needs some itself
def test_stores_are_cleared_in_a_map_that_is_nearly_full(tmp_path: Path, rows: int) -> None:
    replica = LmdbReplica(tmp_path / "replica", "x", ["s"], map_bytes=MAP_BYTES)
    keys = [b"%08d" % number for number in range(rows)]
    replica.apply(["s"], lambda _: [(keys, [b"x" * ROW_BYTES] * rows)], ReplicaPosition())
    replica.clear(["s"], ReplicaPosition(meta={"cleared": 1}))
    reader = replica.reader()
    assert len(reader.map("s")) == 0
    reader.close()
    assert replica.position.meta == {"cleared": 1}
    replica.close()
