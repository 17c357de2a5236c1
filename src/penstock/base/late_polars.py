"""Polars, imported when something of it is first used: drivers of most applications never do.

Its import takes a quarter of a second of CPU time. Modules that are part of each start, and use Polars in functions
only, take ``pl`` from here; all others, and those that only workers load, import Polars itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["pl"]

if TYPE_CHECKING:
    import polars as pl
else:
    from importlib import import_module
    from types import ModuleType

    class _LatePolars(ModuleType):
        def __getattr__(self, name: str) -> object:
            polars = import_module("polars")
            self.__dict__.update(vars(polars))  # from now on it is found without this method
            return getattr(polars, name)

    pl = _LatePolars("polars")
