"""The text of a generated module while it is written: functions, lines, constants."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Block", "Module"]


class Module:
    """The functions of a generated module and the objects that they name.

    Values of a statement never become text of the program, except numbers and strings by their ``repr``.
    """

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.functions: list[str] = []
        self._by_id: dict[int, str] = {}
        self._count = 0

    def constant(self, value: Any) -> str:
        """Return the text that stands for an object."""
        if value is None or type(value) in (bool, str) or (type(value) is int and abs(value) < 1 << 64):
            return repr(value)
        if type(value) is float and math.isfinite(value):
            return repr(value)
        name = self._by_id.get(id(value))
        if name is None:
            name = self._by_id[id(value)] = self.fresh("k")
            self.names[name] = value
        return name

    def fresh(self, prefix: str) -> str:
        """Return a name that is not used yet."""
        self._count += 1
        return f"{prefix}{self._count}"

    @property
    def text(self) -> str:
        """The whole program."""
        return "\n\n".join(self.functions) + "\n"


class Block:
    """Lines of a function, indented; `nested` indents what is written within."""

    def __init__(self, module: Module, depth: int = 1) -> None:
        self.module = module
        self.lines: list[str] = []
        self._depth = depth

    def add(self, line: str) -> None:
        """Write a line."""
        self.lines.append(f"{'    ' * self._depth}{line}")

    @contextmanager
    def nested(self, opening: str) -> Iterator[None]:
        """Write a line that opens a block, and indent what follows."""
        self.add(opening)
        self._depth += 1
        yield
        self._depth -= 1
