"""A worker whose main thread has freed large arrays and waits for Spark; another thread asks for the memory.

Prints the megabytes before and after, and what the main thread has read.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa

from penstock.engines.spark.worker_process import handle_release, release_everywhere

MEGABYTES = 300


def own_megabytes() -> int:
    rows = dict(line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return int(rows["Anonymous"].split()[0]) >> 10


def freed() -> None:
    """Allocate and free as a batch does: buffers of some megabytes that live at the same time."""
    buffers = [pa.allocate_buffer(3 << 20) for _ in range(MEGABYTES // 3)]
    for buffer in buffers:
        pa.py_buffer(buffer)
        memoryview(buffer).cast("B")[::4096] = bytes(len(range(0, buffer.size, 4096)))


def ask(to_main: socket.socket, before: int, found: list[int]) -> None:
    release_everywhere()
    deadline = time.monotonic() + 60
    while own_megabytes() > before - MEGABYTES // 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    found.append(own_megabytes())
    to_main.send(b"next task")


handle_release()
freed()
mine, theirs = socket.socketpair()
kept, left = own_megabytes(), []
threading.Thread(target=ask, args=(theirs, kept, left)).start()
with mine.makefile("rb") as incoming:
    said = incoming.read(9)
print(kept, *left, said.decode())
sys.stdout.flush()
