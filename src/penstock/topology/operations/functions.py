"""A user's function with its place in the user's code: a Python callable or a Polars expression."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import TopologyError
from penstock.topology.operations.row_by_row import looks_at_other_rows

if TYPE_CHECKING:
    from penstock.serde.column import Column

__all__ = ["EXTRACTED", "MERGED", "TOPIC_OF", "ColumnFunction", "Function", "functions_of", "is_expression"]

EXTRACTED = "(record) or (record, partition time)"  # arguments of a timestamp extractor
TOPIC_OF = "(key, value) or (key, value, record context)"  # arguments of a function that names a topic
MERGED = "(key, left, right)"  # arguments of a merger of two sessions
_BY_NAME = {  # options of verbs, and the arguments that they go to
    "Consumed": "consumed",
    "Grouped": "grouped",
    "Joined": "joined",
    "Materialized": "materialized",
    "Produced": "produced",
    "Repartitioned": "repartitioned",
    "StreamJoined": "joined",
    "TableJoined": "joined",
}
_OF_VALUES = ("Series", "DataFrame", "LazyFrame", "ndarray")
_PASSED = {  # arguments that most verbs pass, by their number
    (1,): "(value)",
    (1, 2): "(value) or (key, value)",
    (2,): "(aggregate, value)",
    (2, 3): "(left, right) or (key, left, right)",
    (3,): "(key, value, aggregate)",
    (4, 5): "(topic, key, value, partitions) or (topic, key, value, headers, partitions)",
}


def is_expression(fn: object) -> bool:
    """Return whether this is a Polars expression, without importing Polars."""
    return _is_of_polars(fn, "Expr", "Then", "ChainedThen", "Selector")


def _is_of_polars(fn: object, *names: str) -> bool:
    kind = type(fn)
    return kind.__name__ in names and kind.__module__.split(".", 1)[0] == "polars"


class ColumnFunction:
    """A function of a record that knows the same for whole columns, as the functions of SQL do."""

    def over_columns(self, *arguments: Column) -> Column | None:
        """Return the results for columns of the arguments; None: these columns are left to calls for each record.

        It must equal the calls, record by record, and raises nothing.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Function:
    """A callable or an expression, the number of its arguments, and its place in the user's code.

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
    def takes_columns(self) -> bool:
        """Whether `over_columns` may have a result."""
        return isinstance(self.fn, ColumnFunction)

    def over_columns(self, *arguments: Column) -> Column | None:
        """Return the results for columns of its arguments; None if it has to be called for each record."""
        return self.fn.over_columns(*arguments) if self.takes_columns else None

    @property
    def location(self) -> str:
        return f"{self.name} ({self.file}:{self.line})"

    @classmethod
    def wrap(
        cls,
        fn: object,
        *,
        verb: str,
        allowed: tuple[int, ...],
        passed: str = "",
        expression: bool = True,
        awaits: bool = False,
    ) -> Function:
        """Check and wrap a function that a user passed to a verb.

        Args:
            fn: The user's callable or expression.
            verb: The verb's name, for messages.
            allowed: The numbers of arguments that the verb can pass, the preferred one last. A callable whose
                signature cannot be read (a built-in) gets the first.
            passed: The arguments by name, for messages; by default those that most verbs pass.
            expression: Whether the verb takes expressions.
            awaits: Whether the verb awaits what the function returns.
        """
        if is_expression(fn):
            if not expression:
                raise TopologyError(f"{_calls(verb)} takes a Python function here, not a Polars expression")
            function = cls(fn, 0, "expression", *_caller())
            if (name := looks_at_other_rows(fn)) is not None:
                raise TopologyError(
                    f"{_calls(verb)}: the expression at {function.file}:{function.line} uses {name}, which does not "
                    "work row by row: its result would depend on which records come in one batch",
                    hint="Aggregate with group_by() and count(), reduce() or aggregate(), or keep state in process(). "
                    "For the elements of a list within one record there are .list methods and list.eval().",
                )
            return function
        if _is_of_polars(fn, "When", "ChainedWhen"):
            raise TopologyError(
                f"{_calls(verb)} got a pl.when() without its then()", hint="Add .then(...).otherwise(...)."
            )
        if not callable(fn):
            kinds = "a Python function or a Polars expression" if expression else "a Python function"
            raise TopologyError(
                f"{_calls(verb)} takes {kinds}, not {_shown(fn)}",
                hint=_hint_for(fn, verb, expression=expression),
            )
        if not awaits and _is_async(fn):
            name, file, line = _origin(fn)
            raise TopologyError(
                f"{_calls(verb)} calls plain functions; {name} ({file}:{line}) is an async def, which returns a "
                "coroutine that is not awaited",
                hint="Use map_values_async() or map_async(), which await it and use its result.",
            )
        return cls(fn, _arity(fn, _calls(verb), allowed, passed or _PASSED[allowed]), *_origin(fn))


def functions_of(value: object) -> Iterator[Function]:
    """Yield the functions inside an operation, those of its parts too."""
    if isinstance(value, Function):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from functions_of(one)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for one in dataclasses.fields(value):
            yield from functions_of(getattr(value, one.name))


def _is_async(fn: Any) -> bool:
    """Return whether a call returns something that has to be awaited."""
    whole = [fn, getattr(fn, "func", None)]  # the second is of a partial
    if not inspect.isroutine(fn):
        whole.append(type(fn).__call__)
    return any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in whole)


def _shown(fn: object) -> str:
    """Return what came in place of a function, cut short; of an option of a verb the name alone."""
    kind = type(fn).__name__
    return f"a {kind}" if kind in _BY_NAME or kind in _OF_VALUES else f"{kind} {fn!r:.80}"


def _hint_for(fn: object, verb: str, *, expression: bool) -> str:
    """Return what to pass in place of what came, which cannot be called."""
    name = type(fn).__name__
    if fn is None:
        return "The function is missing: give one, for example a lambda."
    if inspect.iscoroutine(fn):
        fn.close()
        return "An async def was called; pass the function itself, to map_values_async()."
    if name in _BY_NAME:
        option = _BY_NAME[name]
        return f"{name} has another place: pass it by name, {verb.partition(':')[0]}(..., {option}={name}(...))."
    if name in _OF_VALUES:
        instead = "an expression such as pl.col('field') * 2, or a function" if expression else "a function"
        return f"It holds its own values, not those of the records. Pass {instead}."
    parts = fn.values() if isinstance(fn, dict) else fn if isinstance(fn, list | tuple) else ()
    if any(map(is_expression, parts)):
        return "Combine several expressions with pl.struct(...)."
    if isinstance(fn, str):
        field = f'pl.col("{fn}"), or ' if expression else ""
        return f'Pass the function itself, not its name. For a field: {field}lambda value: value["{fn}"].'
    if isinstance(fn, bool | int | float | bytes):
        return "Pass the function itself, without calling it; for the same result each time, lambda value: ..."
    return "Pass the function itself, without calling it."


def _calls(verb: str) -> str:
    """Return ``filter()`` for ``filter``; ``to: partitioner``, a part of a verb, stays as it is."""
    return verb if ":" in verb else f"{verb}()"


def _arity(fn: Callable[..., Any], verb: str, allowed: tuple[int, ...], passed: str) -> int:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return allowed[0]
    by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) and not by_name:
        return allowed[-1]
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in positional)
    for count in reversed(allowed):
        if not by_name and required <= count <= len(positional) and not (count > required and required in allowed):
            return count
    argument_counts = " or ".join(str(n) for n in allowed) + (" argument" if allowed == (1,) else " arguments")
    name, file, line = _origin(fn)
    takes = f"wants {', '.join(by_name)} by name" if by_name else f"takes {_counted(required, len(positional))}"
    raise TopologyError(
        f"{verb} calls its function with {argument_counts}, {passed}; {name} {takes}",
        hint=f"It is defined at {file}:{line}.",
    )


def _counted(required: int, most: int) -> str:
    return str(required) if required == most else f"{required} to {most}"


def _origin(fn: Callable[..., Any]) -> tuple[str, str, int]:
    if type(fn).__module__.split(".", 1)[0] == "penstock":  # a built-in aggregator: the caller's line counts
        return (type(fn).__name__, *_caller())
    fn = getattr(fn, "func", fn)  # of a partial
    code = getattr(inspect.unwrap(fn), "__code__", None) or getattr(getattr(fn, "__call__", None), "__code__", None)  # noqa: B004
    name = getattr(fn, "__qualname__", type(fn).__name__)
    return (name, code.co_filename, code.co_firstlineno) if code else (name, "built-in", 0)


def _caller() -> tuple[str, int]:
    """Return file and line of the first frame outside this package."""
    frame = inspect.currentframe()
    while frame and (frame.f_globals.get("__name__", "").split(".", 1)[0] == "penstock"):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame else ("unknown", 0)
