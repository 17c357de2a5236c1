"""Processes of a worker take little memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

import pyarrow as pa

__all__ = ["take_little_memory"]


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        if name == "pandas":
            raise ModuleNotFoundError(name)


def take_little_memory() -> None:
    """Keep Arrow in this process from loading pandas for each kind of array, and from keeping an arena of its own.

    Arrow looks for pandas when it first makes an array of Python's values, which costs 30 MB and a third of a second.
    A program that imports pandas, or converts to it, still gets it.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    if "pandas" in sys.modules:
        return
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)
