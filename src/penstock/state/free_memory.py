"""Memory that allocators keep although nothing uses it."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache

__all__ = ["c_library", "release_memory"]


def release_memory() -> None:
    """Give back to the system what Arrow's and the C library's allocators keep of memory that is not in use.

    It takes some milliseconds, and the next work has its memory mapped and cleared again: so after work that comes
    once, as a restore, and when nothing has been done for a while. Polars' allocator gives back by itself.
    """
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError, TypeError):  # another C library than glibc
        c_library().malloc_trim(0)


@cache
def c_library() -> ctypes.CDLL:
    """Return the C library of this process."""
    return ctypes.CDLL(None)
