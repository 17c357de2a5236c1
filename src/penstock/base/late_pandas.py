"""Arrow without pandas, for as long as nobody else imports it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

import pyarrow as pa

__all__ = ["keep_pandas_out"]


class _Finder(MetaPathFinder):
    """A finder that hides pandas from Arrow; when another module imports it, Arrow looks again."""

    def __init__(self) -> None:
        self.hidden_from: int | None = threading.get_ident()  # a thread; None: it is hidden no more

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find pandas as Python does, with a loader that tells Arrow; Polars only asks whether it can be found."""
        if name != "pandas":
            return None
        if self.hidden_from == threading.get_ident():  # another thread may import it just now
            raise ModuleNotFoundError(name)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(Loader):
    """A loader of pandas that has Arrow look for it again."""

    def __init__(self, loader: Loader, finder: _Finder) -> None:
        self._loader, self._finder = loader, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        self._loader.exec_module(module)
        pa.lib._pandas_api.__init__()  # noqa: SLF001 - it forgets what it has found


def keep_pandas_out() -> None:
    """Keep Arrow from importing pandas, which it does when it first makes an array of Python's values.

    That costs a process 30 MB and a third of a second of CPU time. Whoever imports pandas later still has it, and Arrow
    knows it from then on. Further calls do nothing.
    """
    if "pandas" in sys.modules or any(isinstance(each, _Finder) for each in sys.meta_path):
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        finder.hidden_from = None
