"""A process with a worker's settings that opens many replicas: ``python memory_of_tasks.py FOLDER``.

Prints the bytes of its own that each of them takes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from memory_after_restore import own_bytes

from penstock.state.free_memory import keep_on_heap
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica
from penstock.state.maps import ReplicaPosition

TASKS = 60


def opened(number: int) -> LmdbReplica:
    replica = LmdbReplica(Path(sys.argv[1]) / str(number), f"task {number}", ["s"])
    replica.apply(["s"], lambda _: [([b"key"], [b"value"])], ReplicaPosition())
    return replica


def main() -> None:
    keep_on_heap(1 << 30, 16 << 20)
    opened(0).close()
    blocks = [bytes(3 << 20) for _ in range(20)]  # a heap that has been in use
    del blocks
    before = own_bytes()
    replicas = [opened(number) for number in range(1, TASKS + 1)]
    print((own_bytes() - before) // TASKS)
    for each in replicas:
        each.close()


if __name__ == "__main__":
    main()
