"""A process that fills a replica in one transaction, as a restore does: ``python memory_after_restore.py FOLDER``.

Prints the growth of its own memory after it, and after it has given back what is not in use, in bytes.
"""

from __future__ import annotations

import gc
import random
import sys
from pathlib import Path

import polars as pl  # noqa: F401 - so that nothing is loaded later

from penstock.state.free_memory import release_memory
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica
from penstock.state.maps import ReplicaPosition

ROWS = 300_000


def own_bytes() -> int:
    rows = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(row.split()[1]) << 10 for row in rows if row.startswith("Anonymous:"))


def fill(replica: LmdbReplica) -> None:
    dice = random.Random(1)
    keys = sorted(dice.randbytes(16) for _ in range(ROWS))
    replica.apply(["s"], lambda _: [(keys, [b"v" * 100] * ROWS)], ReplicaPosition())


def main() -> None:
    replica = LmdbReplica(Path(sys.argv[1]), "test", ["s"])
    release_memory()
    before = own_bytes()
    fill(replica)
    gc.collect()
    release_memory()
    print(own_bytes() - before)
    assert replica.give_back()
    release_memory()
    print(own_bytes() - before)
    reader = replica.reader()
    assert len(reader.map("s")) == ROWS
    reader.close()
    assert not replica.give_back()
    replica.close()


if __name__ == "__main__":
    main()
