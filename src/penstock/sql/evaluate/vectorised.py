"""The second back end: expressions over columns, by Polars, for the forms in which it is equal to the generated code.

A null operand of arithmetic or LIKE spoils the whole expression, and comparisons are false for null. So arithmetic and
LIKE stand at the top only, or below arithmetic, where null stays null; conditions are made of comparisons of columns
and constants, with ``fill_null(False)``. What else differs is left to the generated code: NaN, which Polars holds
equal to itself; the order of texts (Java's is that of UTF-16); integer division and remainder; case mapping, as the
versions of Unicode differ; decimals; casts that wrap or saturate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

import polars as pl

from penstock.serde.column import Column
from penstock.sql.evaluate import typed as n
from penstock.sql.evaluate.compiled import compile_rows
from penstock.sql.functions import EvaluationErrors
from penstock.sql.types import BIGINT, BOOLEAN, DATE, DOUBLE, INTEGER, STRING, TIMESTAMP, SqlType, SqlValueError

__all__ = ["back_end", "compile_columns", "explain", "polars_expression"]

DTYPES: dict[SqlType, pl.DataType] = {
    BOOLEAN: pl.Boolean(),
    INTEGER: pl.Int32(),
    BIGINT: pl.Int64(),
    DOUBLE: pl.Float64(),
    STRING: pl.String(),
    DATE: pl.Date(),
    TIMESTAMP: pl.Int64(),
}
NUMBERS = (INTEGER, BIGINT, DOUBLE)
PLAIN = (n.Column, n.Constant)
OPERATORS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "=": pl.Expr.__eq__,
    "<>": pl.Expr.__ne__,
    "<": pl.Expr.__lt__,
    "<=": pl.Expr.__le__,
    ">": pl.Expr.__gt__,
    ">=": pl.Expr.__ge__,
    "+": pl.Expr.__add__,
    "-": pl.Expr.__sub__,
    "*": pl.Expr.__mul__,
}
ANY = r"[^\n\r\x{85}\x{2028}\x{2029}]"


class Unproved(Exception):  # noqa: N818
    """A form that is left to the generated code."""


def polars_expression(expression: n.Typed, columns: Sequence[str]) -> pl.Expr | None:
    """The expression over a frame, whose columns are named by their places in the row; None if that is not its form.

    >>> from penstock.sql.evaluate.typed import Arithmetic
    >>> sum_ = Arithmetic(INTEGER, "+", n.Column(INTEGER, 0), n.Constant(INTEGER, 1))
    >>> frame = pl.DataFrame({"a": pl.Series([1, None, 2**31 - 1], dtype=pl.Int32)})
    >>> frame.select(polars_expression(sum_, ["a"])).to_series().to_list()
    [2, None, -2147483648]
    """
    try:
        return _value(expression, columns)
    except Unproved:
        return None


def back_end(expression: n.Typed) -> Literal["Polars", "Python"]:
    """The back end that an expression takes where rows come by the column."""
    names = [str(at) for at in range(1 + max(_places(expression), default=0))]
    return "Python" if polars_expression(expression, names) is None else "Polars"


def explain(expressions: Sequence[n.Typed], names: Sequence[str]) -> list[str]:
    """One line for each expression: its name, its type and its back end.

    >>> explain([n.Column(STRING, 0)], ["NAME"])
    ['NAME STRING: Polars']
    """
    pairs = zip(expressions, names, strict=True)
    return [f"{name} {expression.type}: {back_end(expression)}" for expression, name in pairs]


def compile_columns(
    expressions: Sequence[n.Typed], errors: EvaluationErrors, names: Sequence[str]
) -> Callable[[pl.DataFrame], list[Column]]:
    """Compile expressions to a function of a frame, whose columns stand as in rows, that returns their columns.

    Each expression takes its own back end; the errors are reported as `compile_rows` reports them.
    """
    places = [str(at) for at in range(1 + max((at for each in expressions for at in _places(each)), default=0))]
    vectors = [polars_expression(expression, places) for expression in expressions]
    rest = [at for at, vector in enumerate(vectors) if vector is None]
    rows = compile_rows([expressions[at] for at in rest], errors, [names[at] for at in rest])
    chosen = [vector.alias(str(at)) for at, vector in enumerate(vectors) if vector is not None]
    spoiled = [at for at, vector in enumerate(vectors) if vector is not None and not isinstance(expressions[at], PLAIN)]

    def run(frame: pl.DataFrame) -> list[Column]:
        named = frame.rename(dict(zip(frame.columns, map(str, range(frame.width)), strict=True)))
        found: list[Column | None] = [None] * len(expressions)
        if chosen:
            series = {one.name: one for one in named.with_columns(pl.lit(0).alias("")).select(*chosen, "")}
            for at in (at for at, vector in enumerate(vectors) if vector is not None):
                found[at] = Column.of_series(series[str(at)].alias(names[at]))
            for at in spoiled:
                if count := series[str(at)].null_count():
                    errors.report(names[at], SqlValueError("an operand is null"), count)
        if rest:
            made = [rows(row) for row in named.iter_rows()]
            for place, at in enumerate(rest):
                found[at] = Column.of_items([row[place] for row in made])
        return [column for column in found if column is not None]

    return run


def _places(expression: n.Typed) -> set[int]:
    from penstock.sql.evaluate.generate import parts

    if isinstance(expression, n.Column):
        return {expression.index}
    found: set[int] = set().union(*(_places(part) for part in parts(expression)))
    return found


def _value(node: n.Typed, columns: Sequence[str]) -> pl.Expr:
    """An expression at the top: a column, a constant, arithmetic over them, LIKE, a condition."""
    match node:
        case n.Column(index=index):
            return pl.col(columns[index])
        case n.Arithmetic() | n.Negative() | n.Convert():
            return _arithmetic(node, columns)
        case n.Like() | n.Not(operand=n.Like()):
            return _like(node, columns)
        case n.Constant():
            return _constant(node)
    return _condition(node, columns)


def _constant(node: n.Constant) -> pl.Expr:
    if node.type not in DTYPES:
        raise Unproved
    return pl.lit(node.value, dtype=DTYPES[node.type])


def _plain(node: n.Typed, columns: Sequence[str]) -> pl.Expr:
    """What cannot fail."""
    if isinstance(node, n.Column) and node.type in DTYPES:
        return pl.col(columns[node.index])
    if isinstance(node, n.Constant):
        return _constant(node)
    raise Unproved


def _arithmetic(node: n.Typed, columns: Sequence[str]) -> pl.Expr:
    match node:
        case n.Arithmetic(type=kind, operator="+", left=left, right=right) if kind == STRING:
            texts = [_arithmetic(side, columns).fill_null("null") for side in (left, right)]
            return pl.concat_str(texts)
        case n.Arithmetic(type=kind, operator="+" | "-" | "*" as operator, left=left, right=right) if kind in NUMBERS:
            dtype = DTYPES[kind]
            one, two = (_number(side, columns).cast(dtype) for side in (left, right))
            return OPERATORS[operator](one, two)
        case n.Negative(type=kind, operand=operand) if kind in (INTEGER, BIGINT):
            return pl.lit(0, dtype=DTYPES[kind]) - _number(operand, columns)
        case n.Negative(type=kind, operand=operand) if kind == DOUBLE:
            return -_number(operand, columns)
        case n.Convert(type=kind, operand=operand) if kind in (BIGINT, DOUBLE) and operand.type in NUMBERS:
            return _number(operand, columns).cast(DTYPES[kind])
    return _plain(node, columns)


def _number(node: n.Typed, columns: Sequence[str]) -> pl.Expr:
    if node.type not in NUMBERS:
        raise Unproved
    return _arithmetic(node, columns)


def _condition(node: n.Typed, columns: Sequence[str]) -> pl.Expr:
    """What is true or false for every row, and never fails."""
    match node:
        case n.Constant(value=bool()):
            return _constant(node)
        case n.Comparison(operator=operator, left=left, right=right) if operator in OPERATORS:
            return _compared(operator, left, right, columns)
        case n.Between(operand=operand, low=low, high=high):
            return _compared(">=", operand, low, columns) & _compared("<=", operand, high, columns)
        case n.In(operand=operand, items=items) if operand.type in (INTEGER, BIGINT, STRING, DATE):
            constants = [item.value for item in items if isinstance(item, n.Constant)]
            if len(constants) < len(items):
                raise Unproved
            known = pl.Series("", [value for value in constants if value is not None], DTYPES[operand.type])
            return _plain(operand, columns).is_in(known.implode()).fill_null(value=False)
        case n.IsNull(operand=n.Column(index=index)):
            return pl.col(columns[index]).is_null()
        case n.Not(operand=operand):
            return ~_condition(operand, columns)
        case n.Logical(operator=operator, operands=operands):
            found = [_condition(part, columns) for part in operands]
            return pl.all_horizontal(found) if operator == "AND" else pl.any_horizontal(found)
    raise Unproved


def _compared(operator: str, left: n.Typed, right: n.Typed, columns: Sequence[str]) -> pl.Expr:
    one, two = _plain(left, columns), _plain(right, columns)
    kinds = {left.type, right.type}
    if kinds <= set(NUMBERS):
        if DOUBLE in kinds:
            return _doubles(operator, one.cast(pl.Float64), two.cast(pl.Float64))
        one, two = one.cast(pl.Int64), two.cast(pl.Int64)
    elif len(kinds) > 1 or (kinds <= {STRING, BOOLEAN} and operator not in ("=", "<>")):
        raise Unproved
    return OPERATORS[operator](one, two).fill_null(value=False)


def _doubles(operator: str, one: pl.Expr, two: pl.Expr) -> pl.Expr:
    """Polars holds NaN equal to itself and above all else; here nothing but ``<>`` is true of it."""
    none = one.is_nan() | two.is_nan()
    found = OPERATORS[operator](one, two)
    if operator == "<>":
        return (found | none) & one.is_not_null() & two.is_not_null()
    return (found & ~none).fill_null(value=False)


def _like(node: n.Typed, columns: Sequence[str]) -> pl.Expr:
    if isinstance(node, n.Not):
        return ~_like(node.operand, columns)
    assert isinstance(node, n.Like)  # noqa: S101
    if not isinstance(node.pattern, n.Constant) or node.pattern.value is None:
        raise Unproved
    return _plain(node.operand, columns).str.contains(_pattern(node.pattern.value, node.escape))


def _pattern(pattern: str, escape: str | None) -> str:
    parts: list[str] = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            parts.append(_literal(next(letters, "")))
        else:
            parts.append({"%": f"{ANY}*", "_": ANY}.get(letter) or _literal(letter))
    return rf"\A(?:{''.join(parts)})\z"


def _literal(letter: str) -> str:
    return letter if re.fullmatch(r"[A-Za-z0-9]?", letter) else rf"\x{{{ord(letter):x}}}"
