"""A user's function with its place in the user's code: a Python callable or a Polars expression.

An expression sees the records of a batch as columns. One that looks from one row at another (``cum_sum``, ``shift``,
``mean``, ``over``) would have results that depend on where batches are cut, and a test that pipes record by record
would not show it. So it is refused when the topology is built.

The tree is the one of ``expr.meta.serialize``. Kinds of nodes are allowed by name, functions are refused by name, and
Python functions over columns are judged by the options that Polars gives them.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import TopologyError

if TYPE_CHECKING:
    from penstock.serde.column import Column

__all__ = [
    "EXTRACTED",
    "MERGED",
    "TOPIC_OF",
    "ColumnFunction",
    "Function",
    "functions_of",
    "is_expression",
    "looks_at_other_rows",
]

# Node kinds that pass on the rows of their inputs, and those that stand for columns or constants.
_PASSING = {
    "Alias",
    "BinaryExpr",
    "Cast",
    "Column",
    "Columns",
    "DataTypeFunction",
    "Display",
    "DtypeColumn",
    "Element",
    "Exclude",
    "Field",
    "Function",
    "IndexColumn",
    "KeepName",
    "Literal",
    "Nth",
    "RenameAlias",
    "Root",
    "Selector",
    "StructEval",
    "Ternary",
    "Wildcard",
}
_NAMES = {
    "AnonymousFunction": "map_batches",
    "FfiPlugin": "a plugin",
    "Filter": "filter",
    "Explode": "explode",
    "Gather": "gather or get",
    "Len": "len",
    "Over": "over",
    "Window": "over",
    "Rolling": "rolling",
    "Slice": "slice, head, tail or limit",
    "Sort": "sort",
    "SortBy": "sort_by",
    "SubPlan": "a subquery",
}
_FUNCTIONS = {
    "Append",
    "ApproxNUnique",
    "ApproxQuantile",
    "ArgMax",
    "ArgMin",
    "ArgSort",
    "ArgUnique",
    "ArgWhere",
    "BackwardFill",
    "BinQuantiles",
    "BinRanks",
    "ConcatExpr",
    "Correlation",
    "Count",
    "CumCount",
    "CumMax",
    "CumMean",
    "CumMin",
    "CumProd",
    "CumSum",
    "Diff",
    "DropNans",
    "DropNulls",
    "Entropy",
    "ExtendConstant",
    "ForwardFill",
    "GatherEvery",
    "Hist",
    "IndexOf",
    "Interpolate",
    "InterpolateBy",
    "Kurtosis",
    "LowerBound",
    "MaxBy",
    "MinBy",
    "Mode",
    "NullCount",
    "PctChange",
    "PeakMax",
    "PeakMin",
    "Product",
    "QCut",
    "Quantile",
    "RLE",
    "RLEID",
    "Random",
    "Rank",
    "Repeat",
    "Reshape",
    "Reverse",
    "RollingExpr",
    "RollingExprBy",
    "SearchSorted",
    "Shift",
    "ShiftAndFill",
    "Skew",
    "TopK",
    "TopKBy",
    "Unique",
    "UniqueCounts",
    "UpperBound",
    "ValueCounts",
}
_BY_FAMILY = {
    "Bitwise": {"And", "Or", "Xor"},
    "Boolean": {
        "All",
        "Any",
        "HasNulls",
        "IsDuplicated",
        "IsEmpty",
        "IsFirstDistinct",
        "IsLastDistinct",
        "IsSorted",
        "IsUnique",
    },
    "Categorical": {"GetCategories"},
    "CategoricalExpr": {"GetCategories"},
    "Range": {"DateRange", "DatetimeRange", "IntRange", "LinearSpace", "TimeRange"},
    "StringExpr": {"ConcatVertical"},
    "StructExpr": set(),
    "TemporalExpr": set(),
}
_SPOKEN = {
    "And": "bitwise_and",
    "ApproxNUnique": "approx_n_unique",
    "ArgWhere": "arg_where or arg_true",
    "ConcatVertical": "str.join",
    "Correlation": "corr or cov",
    "GetCategories": "cat.get_categories",
    "NUnique": "n_unique",
    "Or": "bitwise_or",
    "QCut": "qcut",
    "RLE": "rle",
    "RLEID": "rle_id",
    "RollingExprBy": "rolling_..._by",
    "TopK": "top_k or bottom_k",
    "TopKBy": "top_k_by or bottom_k_by",
    "Xor": "bitwise_xor",
}
_CONSTANT_FILLS = {"Zero", "One", "MinBound", "MaxBound"}
# Functions whose constants may be columns of their own.
_OVER_CONSTANTS = {"IsIn", "Replace", "ReplaceStrict", "Business"}


def looks_at_other_rows(expression: Any) -> str | None:
    """Return the name of a function of an expression that looks at other rows than its own; None if there is none.

    >>> import polars as pl
    >>> looks_at_other_rows(pl.col("value") * 2), looks_at_other_rows(pl.col("value").cum_sum() * 2)
    (None, 'cum_sum')
    >>> looks_at_other_rows(pl.col("value").list.sum()), looks_at_other_rows(pl.col("value") / pl.col("value").sum())
    (None, 'sum')
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = json.loads(expression.meta.serialize(format="json"))
    except Exception:  # noqa: BLE001 - what Polars cannot write down, for example a function that cannot be pickled
        return None
    return next(_found(tree), None)


def _found(node: Any, *, constants: bool = False) -> Iterator[str]:
    """Yield the names of functions that look at other rows, the outermost first."""
    if isinstance(node, str):
        if node == "Len":
            yield "len"
        return
    if not isinstance(node, dict):
        return
    for kind, inside in node.items():
        if kind in ("Function", "AnonymousFunction", "FfiPlugin"):
            yield from _of_function(kind, inside)
        elif kind == "Eval":
            yield from _of_eval(inside)
        elif kind == "Agg":
            yield _of_aggregation(inside)
        elif kind == "Literal":
            if not constants and isinstance(inside, dict) and "Series" in inside:
                yield "lit of a Series"
        elif kind in _NAMES:
            yield _NAMES[kind]
        elif kind in _PASSING:
            yield from _inputs(inside)
        else:
            yield _snake(kind)


def _inputs(inside: Any) -> Iterator[str]:
    """Yield what is found in the expressions inside of a node that passes on rows."""
    parts = inside.values() if isinstance(inside, dict) else inside if isinstance(inside, list) else ()
    for part in parts:
        if isinstance(part, list):
            yield from _inputs(part)
        elif isinstance(part, dict) and not _is_data(part):
            yield from _found(part)
        elif part == "Len":
            yield "len"


def _is_data(part: dict[str, Any]) -> bool:
    """Return whether this is not an expression but an option: a data type, a name."""
    kinds = {*_PASSING, *_NAMES, "Agg", "Eval"}
    return not (len(part) == 1 and next(iter(part)) in kinds)


def _of_function(kind: str, inside: dict[str, Any]) -> Iterator[str]:
    name, family = "", ""
    if kind == "Function":
        name, family, options = _name_of(inside.get("function"))
        if name in _BY_FAMILY.get(family, set()) or (not family and name in _FUNCTIONS) or name.startswith("Ewm"):
            yield _spoken(name, options)
        elif name == "FillNullWithStrategy" and _first(options) not in _CONSTANT_FILLS:
            yield f'fill_null(strategy="{_snake(_first(options))}")'
        elif name == "Strptime" and _has_no_format(options):
            yield "str.to_datetime without a format (it is guessed from the first row)"
    elif not re.search("ROW_SEPARABLE|ELEMENT_?WISE", json.dumps(inside.get("options", "")), re.IGNORECASE):
        yield _NAMES[kind]
    for part in inside.get("input", ()):
        yield from _found(part, constants=name in _OVER_CONSTANTS or family in _OVER_CONSTANTS)


def _of_eval(inside: dict[str, Any]) -> Iterator[str]:
    """Look at an evaluation over the elements of each list: inside of one row all is allowed."""
    if "umulative" in json.dumps(inside.get("variant", "")):
        yield "cumulative_eval"
    yield from _found(inside.get("expr"))


def _of_aggregation(inside: Any) -> str:
    name = _first(inside)
    return _SPOKEN.get(name, _snake(name))


def _name_of(function: Any) -> tuple[str, str, Any]:
    """Return a function's name, the family that it is of, and its options."""
    name = _first(function)
    options = function[name] if isinstance(function, dict) else None
    if name in _BY_FAMILY or name in ("ListExpr", "ArrayExpr", "BinaryExpr"):
        inner = _first(options)
        return inner, name, options[inner] if isinstance(options, dict) else None
    return name, "", options


def _first(node: Any) -> str:
    return str(next(iter(node), "")) if isinstance(node, dict) else str(node)


def _spoken(name: str, options: Any) -> str:
    if name == "RollingExpr" and isinstance(options, dict):
        return f"rolling_{_snake(_first(options.get('function')))}"
    if name == "Random" and isinstance(options, dict):
        return _snake(_first(options.get("method")))
    return _SPOKEN.get(name, _snake(name))


def _has_no_format(options: Any) -> bool:
    parts = options if isinstance(options, list) else [options]
    return any(isinstance(part, dict) and "format" in part and part["format"] is None for part in parts)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


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
        return f"{self.name} ({self.file}:{self.line})" if self.line else f"{self.name} ({self.file})"

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
