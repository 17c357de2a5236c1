"""Whether a Polars expression works row by row, by its tree.

An expression sees the records of a batch as columns. One that looks from one row at another (``cum_sum``, ``shift``,
``mean``, ``over``) would have results that depend on where batches are cut, and a test that pipes record by record
would not show it. So it is refused when the topology is built.

The tree is the one of ``expr.meta.serialize``. Kinds of nodes are allowed by name, functions are refused by name, and
Python functions over columns are judged by the options that Polars gives them.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from typing import Any

__all__ = ["looks_at_other_rows"]

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
