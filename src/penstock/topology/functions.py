"""A user's function, wrapped where the user wrote it: a Python callable or a Polars expression."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import TopologyError

__all__ = ["Function", "is_expression"]


def is_expression(fn: object) -> bool:
    """Whether this is a Polars expression, told without importing Polars."""
    kind = type(fn)
    return kind.__name__ in ("Expr", "When", "Then", "ChainedThen") and kind.__module__.split(".", 1)[0] == "polars"


@dataclass(frozen=True, slots=True)
class Function:
    """A callable or an expression, how many arguments the callable takes, and where it comes from.

    ``arity`` is the number of positional arguments to pass: among those the verb allows, the largest that fits the
    callable's signature. 0 for an expression.
    """

    fn: Any = field(compare=False)
    arity: int
    name: str
    file: str
    line: int

    @property
    def is_expression(self) -> bool:
        return self.arity == 0 and not callable(self.fn)

    @property
    def location(self) -> str:
        return f"{self.name} ({self.file}:{self.line})"

    @classmethod
    def wrap(cls, fn: object, *, verb: str, allowed: tuple[int, ...], expression: bool = True) -> Function:
        """Checks and wraps what a user passed to a verb.

        Args:
            fn: The user's callable or expression.
            verb: The verb's name, for messages.
            allowed: The numbers of arguments that the verb can pass, the preferred one last. A callable whose
                signature cannot be read (a built-in) gets the first.
            expression: Whether the verb takes expressions.
        """
        if is_expression(fn):
            if not expression:
                raise TopologyError(f"{verb}() takes a Python function here, not a Polars expression")
            return cls(fn, 0, "expression", *_caller())
        if not callable(fn):
            kinds = "a Python function or a Polars expression" if expression else "a Python function"
            raise TopologyError(
                f"{verb}() takes {kinds}, not {type(fn).__name__} {fn!r}",
                hint="Pass the function itself, without calling it.",
            )
        return cls(fn, _arity(fn, verb, allowed), *_origin(fn))


def _arity(fn: Callable[..., Any], verb: str, allowed: tuple[int, ...]) -> int:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return allowed[0]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return allowed[-1]
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in positional)
    for count in reversed(allowed):
        if required <= count <= len(positional) and not (count > required and required in allowed):
            return count
    wanted = " or ".join(str(n) for n in allowed)
    raise TopologyError(
        f"{verb}() calls its function with {wanted} argument(s); {_origin(fn)[0]} takes {required}",
        hint="See the docstring of the verb for what it passes.",
    )


def _origin(fn: Callable[..., Any]) -> tuple[str, str, int]:
    code = getattr(inspect.unwrap(fn), "__code__", None) or getattr(getattr(fn, "__call__", None), "__code__", None)  # noqa: B004
    name = getattr(fn, "__qualname__", type(fn).__name__)
    return (name, code.co_filename, code.co_firstlineno) if code else (name, "built-in", 0)


def _caller() -> tuple[str, int]:
    """File and line of the first frame outside this package."""
    frame = inspect.currentframe()
    while frame and (frame.f_globals.get("__name__", "").split(".", 1)[0] == "penstock"):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame else ("unknown", 0)
