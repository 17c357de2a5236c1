"""How the processes of a Connect worker give memory back."""

from __future__ import annotations

import pyarrow as pa

from penstock.base.late_pandas import keep_pandas_out

__all__ = ["take_little_memory"]


def take_little_memory() -> None:
    """Keep Arrow in this process from loading pandas, and from keeping an arena of its own."""
    pa.set_memory_pool(pa.system_memory_pool())
    keep_pandas_out()
