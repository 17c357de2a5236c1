"""The LMDB environment of a replica, mapped as large as it may be."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import lmdb

from penstock.state.free_memory import map_large_blocks
from penstock.state.own_folder import folder_mode

__all__ = ["MAP_BYTES", "open_environment"]

MAP_BYTES = 16 << 30  # addresses, neither memory nor disk: the file is as long as the data written
_LEAST_MAP_BYTES = 64 << 20
_OTHER_STORES = 64  # of earlier topologies, in segments; LMDB takes a kilobyte for each that might be opened
_MAX_READERS = 512  # the worker and the readers of queries; 64 bytes each in a table


def open_environment(directory: Path, map_bytes: int, stores: int, *, flushes: bool) -> Any:
    """Open or create an environment.

    Args:
        directory: Where its files are.
        map_bytes: How large it may become before it is mapped anew. Less is taken where so many addresses are not to be
            had (``ulimit -v``).
        stores: How many sub-databases of its own it will have.
        flushes: Whether each transaction is brought to the disk.
    """
    while True:
        try:
            with map_large_blocks():
                return lmdb.open(
                    str(directory),
                    map_size=map_bytes,
                    mode=folder_mode(directory),
                    max_dbs=stores + _OTHER_STORES,
                    max_readers=_MAX_READERS,
                    sync=flushes,
                    metasync=False,
                    readahead=False,
                    lock=True,
                )
        except (lmdb.MemoryError, OSError) as error:
            is_too_large = isinstance(error, lmdb.MemoryError) or error.errno == errno.ENOMEM
            if not is_too_large or map_bytes <= _LEAST_MAP_BYTES:
                raise
            map_bytes //= 4
