"""Calls of Python functions with values of SQL: an exception becomes one that names function and arguments."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from penstock.sql.functions.evaluation_errors import FunctionFailed
from penstock.sql.functions.user.declarations import Taken
from penstock.sql.functions.user.values import incoming, outgoing, shown
from penstock.sql.types import SqlType, SqlValueError

__all__ = ["MAX_ROWS", "FunctionCall", "CallRows", "arguments_of"]

MAX_ROWS = 1_000_000  # of a table function for one row
Convert = Callable[[Any], Any]


def arguments_of(taken: Sequence[Taken], count: int) -> list[Taken]:
    """Return the parameter of each argument: a variadic one takes all that the others leave."""
    parameters: list[Taken] = []
    extra = count - len(taken)
    for each in taken:
        parameters += [each] * (extra + 1) if each.variadic else [each]
    return parameters[:count]


@dataclass(slots=True)
class FunctionCall:
    """A Python function over values of SQL.

    Attributes:
        name: The name in SQL.
        target: The function.
        taken: Its annotated parameters; empty where all values go to it as they are.
        nulls: Whether it is called with nulls although no annotation says so.
        settings: What it takes as ``settings``; None if it has no such parameter.
        shows: Whether messages show the arguments.
        result: The type of the result; None leaves it as it is.
    """

    name: str
    target: Callable[..., Any]
    taken: tuple[Taken, ...] = ()
    nulls: bool = False
    settings: Mapping[str, str] | None = None
    shows: bool = True
    result: SqlType | None = None
    _steps: dict[int, list[Convert | None] | None] | None = None
    _check: Convert | None = None

    def __call__(self, *values: Any) -> Any:
        """Return the result; null where an argument is null that must not be.

        Raises:
            SqlValueError: The function has raised, or returned what is not a value of its type.
        """
        if self.refuses(values):
            return None
        result = self.run(values)
        if self._check is None and self.result is not None:
            self._check = outgoing(self.result)
        try:
            return result if self._check is None else self._check(result)
        except SqlValueError as error:
            raise FunctionFailed(f"{self.name}({self.arguments(values)}): {error}") from error

    def refuses(self, values: Sequence[Any]) -> bool:
        """Return whether null among the values makes the result null."""
        if self.nulls or not any(value is None for value in values):
            return False
        pairs = zip(values, arguments_of(self.taken, len(values)), strict=False)
        return not self.taken or any(value is None and not each.nullable for value, each in pairs)

    def run(self, values: Sequence[Any], before: tuple[Any, ...] = ()) -> Any:
        """Call the function, with what stands before the arguments; its result is not checked."""
        steps = self._conversions(len(values))
        taken = values if steps is None else [s(v) if s else v for s, v in zip(steps, values, strict=True)]
        try:
            if self.settings is None:
                return self.target(*before, *taken)
            return self.target(*before, *taken, settings=self.settings)
        except Exception as error:
            raise FunctionFailed(self.raised(error, values)) from error

    def raised(self, error: BaseException, values: Sequence[Any]) -> str:
        """Return the message for an exception of the function."""
        frames = traceback.extract_tb(error.__traceback__)
        at = f" at {frames[-1].filename}:{frames[-1].lineno}" if len(frames) > 1 else ""
        return f"{self.name}({self.arguments(values)}) raised {type(error).__name__}: {str(error)[:500]}{at}"

    def arguments(self, values: Sequence[Any]) -> str:
        """Return the arguments as a message shows them."""
        return shown(values) if self.shows else "..."

    def _conversions(self, count: int) -> list[Convert | None] | None:
        if not self.taken:
            return None
        if self._steps is None:
            self._steps = {}
        if count not in self._steps:
            steps = [incoming(each.annotation) for each in arguments_of(self.taken, count)]
            self._steps[count] = steps if any(steps) else None
        return self._steps[count]

    def __reduce__(self) -> Any:
        return FunctionCall, (self.name, self.target, self.taken, self.nulls, self.settings, self.shows, self.result)


@dataclass(slots=True)
class CallRows:
    """A table function over values of SQL: the list of its rows."""

    call: FunctionCall
    row: SqlType

    def __call__(self, *values: Any) -> list[Any]:
        if self.call.refuses(values):
            return []
        check = outgoing(self.row)
        try:
            rows = list(islice(self.call.run(values) or (), MAX_ROWS + 1))
            if len(rows) <= MAX_ROWS:
                return [check(row) for row in rows]
        except FunctionFailed:
            raise
        except SqlValueError as error:
            raise FunctionFailed(f"{self.call.name}({self.call.arguments(values)}): {error}") from error
        except Exception as error:
            raise FunctionFailed(self.call.raised(error, values)) from error
        raise FunctionFailed(f"{self.call.name}({self.call.arguments(values)}) makes more than {MAX_ROWS} rows")
