"""Memory that allocators keep, or take, although nothing uses it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

__all__ = ["keep_on_heap", "map_large_blocks", "release_memory"]

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # mallopt(3)
_MAPPED_ALONE_BYTES = 32 << 20  # the largest threshold that glibc accepts
_BLOCK_BYTES = 256 << 10


def release_memory() -> None:
    """Give back to the system what Arrow's and the C library's allocators keep of memory that is not in use.

    It takes some milliseconds, and the next work has its memory mapped and cleared again: so after work that comes
    once, as a restore, and when nothing has been done for a while. Polars' allocator gives back by itself.
    """
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError, TypeError):  # another C library than glibc
        _c_library().malloc_trim(0)


class _Heap:
    """The choice of this process to keep large blocks on its heap."""

    is_kept = False


def keep_on_heap(kept_bytes: int, at_once_bytes: int) -> None:
    """Have the C library keep blocks on its heap, up to so many bytes that are free, and enlarge it by so many."""
    _Heap.is_kept = True
    _mallopt(_M_MMAP_THRESHOLD, _MAPPED_ALONE_BYTES)
    _mallopt(_M_TRIM_THRESHOLD, kept_bytes)
    _mallopt(_M_TOP_PAD, at_once_bytes)


@contextmanager
def map_large_blocks() -> Iterator[None]:
    """Map large blocks that are allocated inside separately, so that they take no memory until they are used.

    LMDB reserves such blocks for each file and hardly uses them. On a heap that is kept the C library would clear one
    first: 2 MB for each open task. In other processes the C library decides.
    """
    if not _Heap.is_kept:
        yield
        return
    _mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES)
    try:
        yield
    finally:
        _mallopt(_M_MMAP_THRESHOLD, _MAPPED_ALONE_BYTES)


def _mallopt(option: int, value: int) -> None:
    with suppress(OSError, AttributeError, TypeError):  # another C library than glibc
        _c_library().mallopt(option, value)


@cache
def _c_library() -> ctypes.CDLL:
    """Return the C library of this process."""
    return ctypes.CDLL(None)
