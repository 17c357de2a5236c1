"""Expressions over columns: by Polars where it is proved equal, regular expressions too, else by generated code.

Both prefer the first alternative and the longest greedy repetition from the left. What could differ is left out:
groups within a repetition, repetitions of what may be empty, look-around, references, boundaries of words, flags.

A null operand of arithmetic or LIKE spoils the whole expression, and comparisons are false for null. So arithmetic and
LIKE stand at the top only, or below arithmetic, where null stays null; conditions are made of comparisons of columns,
constants, parts of texts and numbers in texts, with ``fill_null(False)``. What else differs is left to the generated
code: NaN, which Polars holds equal to itself; the order of texts (Java's is that of UTF-16); integer division and
remainder; case mapping, as the versions of Unicode differ; decimals; casts that wrap or saturate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from penstock.base.java_text.regex import compile_java
from penstock.base.java_text.texts import JavaTextError
from penstock.serde.column import Column, RowColumn
from penstock.sql.evaluate import typed as n
from penstock.sql.evaluate.compiled import compile_rows, parts
from penstock.sql.functions import EvaluationErrors
from penstock.sql.types import BIGINT, BOOLEAN, DATE, DOUBLE, INTEGER, NULL, STRING, SqlType, SqlValueError
from penstock.sql.types.columns import DTYPES, typed_series

__all__ = ["back_end", "compile_columns", "explain", "places_of"]

# Regular expressions

MOST_REPEATS = 100
CATEGORIES = {
    codes.CATEGORY_DIGIT: "0-9",
    codes.CATEGORY_SPACE: r"\x{20}\x{9}-\x{d}",
    codes.CATEGORY_WORD: "a-zA-Z0-9_",
    codes.CATEGORY_NOT_DIGIT: "[^0-9]",
    codes.CATEGORY_NOT_SPACE: r"[^\x{20}\x{9}-\x{d}]",
    codes.CATEGORY_NOT_WORD: "[^a-zA-Z0-9_]",
}
PLACES = {
    codes.AT_BEGINNING: r"\A",
    codes.AT_BEGINNING_STRING: r"\A",
    codes.AT_END: r"\z",
    codes.AT_END_STRING: r"\z",
}


class RustRegex(NamedTuple):
    """An expression for Polars, whose first group is the whole match.

    Attributes:
        text: The expression.
        groups: The number of groups of the original.
        ends_lines: Whether it has a ``$``, which also stands before a line break at the end: then it is for texts
            without one.
    """

    text: str
    groups: int
    ends_lines: bool


class _Unequal(Exception):  # noqa: N818
    pass


@lru_cache(maxsize=512)
def rust_regex(pattern: str) -> RustRegex | None:
    r"""Return the same expression for Polars; None if there could be a difference, or it is wrong.

    >>> rust_regex(r"(a|\d+)$")
    RustRegex(text='(((?:\\x{61}|[0-9]+))\\z)', groups=1, ends_lines=True)
    >>> rust_regex("(a*)*") is None
    True
    """
    try:
        compiled = compile_java(pattern)
        if compiled.flags & ~re.ASCII:
            return None
        tree = parser.parse(compiled.pattern, re.ASCII)
        ends: list[object] = []
        return RustRegex(f"({_sequence(tree, ends, repeated=False)})", compiled.groups, bool(ends))
    except (_Unequal, JavaTextError, RecursionError):
        return None


def _sequence(tree: Any, ends: list[object], *, repeated: bool) -> str:
    return "".join([_one(code, argument, ends, repeated=repeated) for code, argument in tree])


def _one(code: Any, argument: Any, ends: list[object], *, repeated: bool) -> str:
    match code:
        case codes.LITERAL:
            return _literal_text(argument)
        case codes.NOT_LITERAL:
            return f"[^{_literal_text(argument)}]"
        case codes.IN:
            return _class(argument)
        case codes.AT if argument in PLACES:
            if argument is codes.AT_END:
                ends.append(code)
            return PLACES[argument]
        case codes.BRANCH:
            return f"(?:{'|'.join([_sequence(each, ends, repeated=repeated) for each in argument[1]])})"
        case codes.SUBPATTERN if not argument[1] and not argument[2]:
            if argument[0] is None:
                return f"(?:{_sequence(argument[3], ends, repeated=repeated)})"
            if repeated:
                raise _Unequal
            return f"({_sequence(argument[3], ends, repeated=repeated)})"
        case codes.MAX_REPEAT | codes.MIN_REPEAT:
            return _repeat(argument, ends) + ("?" if code is codes.MIN_REPEAT else "")
    raise _Unequal


def _repeat(argument: Any, ends: list[object]) -> str:
    least, most, body = argument
    unbounded = most is codes.MAXREPEAT
    if body.getwidth()[0] == 0 or least > MOST_REPEATS or (not unbounded and most > MOST_REPEATS):
        raise _Unequal
    inner = _sequence(body, ends, repeated=True)
    if len(body) > 1:
        inner = f"(?:{inner})"
    quantifier = {(0, True): "*", (1, True): "+"}.get((least, unbounded))
    if quantifier is None:
        quantifier = "?" if (least, most) == (0, 1) else f"{{{least},{'' if unbounded else most}}}"
    return inner + quantifier


def _class(items: Any) -> str:
    parts = []
    for code, argument in items:
        match code:
            case codes.NEGATE:
                parts.append("^")
            case codes.LITERAL:
                parts.append(_literal_text(argument))
            case codes.RANGE:
                parts.append(f"{_literal_text(argument[0])}-{_literal_text(argument[1])}")
            case codes.CATEGORY if argument in CATEGORIES:
                parts.append(CATEGORIES[argument])
            case _:
                raise _Unequal
    return f"[{''.join(parts)}]"


def _literal_text(code: int) -> str:
    if 0xD800 <= code <= 0xDFFF:
        raise _Unequal
    return rf"\x{{{code:x}}}"


# Expressions of Polars

NUMBERS = (INTEGER, BIGINT, DOUBLE)
WHOLE: dict[SqlType, str] = {INTEGER: r"\A-?[0-9]{1,9}\z", BIGINT: r"\A-?[0-9]{1,18}\z"}  # more digits may not fit
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
BREAKS = "\n\r\u0085\u2028\u2029"
ANY = r"[^\n\r\x{85}\x{2028}\x{2029}]"


class Unproved(Exception):  # noqa: N818
    """A form that is left to the generated code."""


@dataclass(slots=True)
class FrameScope:
    """The names that the expressions of one frame need; its columns are named by their places in the row.

    Attributes:
        kinds: The types of the columns that they name, by place.
        checks: Conditions, by their text, that must hold for every row (null counts as true), else the rows are for the
            generated code.
        prepared: Columns that several expressions share, by their text: name and expression.
    """

    kinds: dict[int, SqlType] = field(default_factory=dict)
    checks: dict[str, pl.Expr] = field(default_factory=dict)
    prepared: dict[str, tuple[str, pl.Expr]] = field(default_factory=dict)

    def shared(self, text: str, expression: pl.Expr) -> str:
        """Return the name of a column that is computed once."""
        return self.prepared.setdefault(text, (f"shared {len(self.prepared)}", expression))[0]

    def check(self, condition: pl.Expr) -> None:
        """Demand a condition of every row."""
        self.checks[str(condition)] = condition

    def update(self, other: FrameScope) -> None:
        """Take over what another scope needs, whose shared columns were numbered behind those of this one."""
        self.kinds.update(other.kinds)
        self.checks.update(other.checks)
        self.prepared.update(other.prepared)


def polars_expression(expression: n.Typed, scope: FrameScope) -> pl.Expr | None:
    """Return the expression over a frame whose columns are named by their places; None if it has no proved form.

    >>> from penstock.sql.evaluate.typed import Arithmetic
    >>> sum_ = Arithmetic(INTEGER, "+", n.TypedColumn(INTEGER, 0), n.Constant(INTEGER, 1))
    >>> frame = pl.DataFrame({"0": pl.Series([1, None, 2**31 - 1], dtype=pl.Int32)})
    >>> frame.select(polars_expression(sum_, FrameScope())).to_series().to_list()
    [2, None, -2147483648]
    """
    own = FrameScope(prepared=dict(scope.prepared))
    try:
        polars_form = _value(expression, own)
    except Unproved:
        return None
    scope.update(own)
    return polars_form


def _value(node: n.Typed, scope: FrameScope) -> pl.Expr:
    """Return an expression at the top: a constant, a text's part, CASE, arithmetic, LIKE, a condition."""
    match node:
        case n.Arithmetic() | n.Negative() | n.Convert():
            return _arithmetic(node, scope)
        case n.Like() | n.Not(operand=n.Like()):
            return _like(node, scope)
        case n.Constant():
            return _constant(node)
        case n.Case():
            return _case(node, scope)
        case n.Call() | n.TypedCast():
            return _plain(node, scope)
    return _condition(node, scope)


def _constant(node: n.Constant) -> pl.Expr:
    if node.type not in DTYPES:
        raise Unproved
    return pl.lit(node.value, dtype=DTYPES[node.type])


def _plain(node: n.Typed, scope: FrameScope) -> pl.Expr:
    """Return what cannot fail, or only in columns that the scope's checks refuse."""
    match node:
        case n.TypedColumn(index=index, type=kind) if kind in DTYPES:
            scope.kinds[index] = kind
            return pl.col(str(index))
        case n.Constant():
            return _constant(node)
        case n.Call(name="REGEXP_EXTRACT", arguments=(n.Constant(value=str() as pattern), text, *rest)):
            group = rest[0] if rest else None
            if group is None or (isinstance(group, n.Constant) and isinstance(group.value, int)):
                return _extract(pattern, text, 0 if group is None else group.value, scope)
        case n.TypedCast(type=kind, operand=operand) if operand.type == STRING and kind in WHOLE:
            column = _plain(operand, scope)
            scope.check(column.str.contains(WHOLE[kind]))
            return column.cast(DTYPES[kind], strict=False)
    raise Unproved


def _extract(pattern: str, text: n.Typed, group: int, scope: FrameScope) -> pl.Expr:
    expression = rust_regex(pattern)
    if expression is None or text.type != STRING or not 0 <= group <= expression.groups:
        raise Unproved
    column = _plain(text, scope)
    if expression.ends_lines:
        scope.check(~column.str.contains("\n", literal=True))
    name = scope.shared(f"{expression.text} of {column}", column.str.extract_groups(expression.text))
    return pl.col(name).struct.field(str(group + 1))


def _case(node: n.Case, scope: FrameScope) -> pl.Expr:
    """CASE with constants for results; a condition that is null spoils it, hence no result may be null then."""
    results = [result for _, result in node.branches] + [node.otherwise]
    if not all(isinstance(each, n.Constant) and each.type in (node.type, NULL) for each in results):
        raise Unproved
    if spoils(node) and any(isinstance(each, n.Constant) and each.value is None for each in results):
        raise Unproved
    dtype = DTYPES.get(node.type)
    if dtype is None:
        raise Unproved
    chain: Any = pl
    for test, result in node.branches:
        like = test.operand if isinstance(test, n.Not) else test
        if isinstance(like, n.Like):
            condition = _like(test, scope)
            chain = chain.when(_plain(like.operand, scope).is_null()).then(pl.lit(None, dtype))
        else:
            condition = _condition(test, scope)
        assert isinstance(result, n.Constant)  # noqa: S101
        chain = chain.when(condition).then(pl.lit(result.value, dtype))
    assert isinstance(node.otherwise, n.Constant)  # noqa: S101
    case_form: pl.Expr = chain.otherwise(pl.lit(node.otherwise.value, dtype))
    return case_form


def _is_like(node: n.Typed) -> bool:
    return isinstance(node, n.Like) or (isinstance(node, n.Not) and isinstance(node.operand, n.Like))


def spoils(node: n.Typed) -> bool:
    """Return whether a null result of an expression is an error that is reported."""
    if isinstance(node, n.Case):
        return any(_is_like(test) for test, _ in node.branches)
    return isinstance(node, n.Arithmetic | n.Negative | n.Convert) or _is_like(node)


def _arithmetic(node: n.Typed, scope: FrameScope) -> pl.Expr:
    match node:
        case n.Arithmetic(type=kind, operator="+", left=left, right=right) if kind == STRING:
            texts = [_arithmetic(side, scope).fill_null("null") for side in (left, right)]
            return pl.concat_str(texts)
        case n.Arithmetic(type=kind, operator="+" | "-" | "*" as operator, left=left, right=right) if kind in NUMBERS:
            dtype = DTYPES[kind]
            one, two = (_number(side, scope).cast(dtype) for side in (left, right))
            return _sum(operator, one, two) if kind == DOUBLE and operator != "*" else OPERATORS[operator](one, two)
        case n.Negative(type=kind, operand=operand) if kind in (INTEGER, BIGINT):
            return pl.lit(0, dtype=DTYPES[kind]) - _number(operand, scope)
        case n.Negative(type=kind, operand=operand) if kind == DOUBLE:
            return -_number(operand, scope)
        case n.Convert(type=kind, operand=operand) if kind in (BIGINT, DOUBLE) and operand.type in NUMBERS:
            return _number(operand, scope).cast(DTYPES[kind])
    return _plain(node, scope)


def _sum(operator: str, one: pl.Expr, two: pl.Expr) -> pl.Expr:
    """Return a sum or difference of doubles; one of zero is -0.0 only if -0.0 is added to -0.0.

    Polars leaves out the addition of a zero that is the same for all rows, and so keeps the sign of the other one.
    """
    result = OPERATORS[operator](one, two)
    if one.meta.root_names() and two.meta.root_names():
        return result
    both_negative = (1.0 / one < 0) & (1.0 / (-two if operator == "-" else two) < 0)
    return pl.when((result == 0) & ~both_negative).then(0.0).otherwise(result)


def _number(node: n.Typed, scope: FrameScope) -> pl.Expr:
    if node.type not in NUMBERS:
        raise Unproved
    return _arithmetic(node, scope)


def _condition(node: n.Typed, scope: FrameScope) -> pl.Expr:
    """Return what is true or false for every row, and never fails."""
    match node:
        case n.Constant(value=bool()):
            return _constant(node)
        case n.Comparison(operator=operator, left=left, right=right) if operator in OPERATORS:
            return _compared(operator, left, right, scope)
        case n.Between(operand=operand, low=low, high=high):
            return _compared(">=", operand, low, scope) & _compared("<=", operand, high, scope)
        case n.In(operand=operand, items=items) if operand.type in (INTEGER, BIGINT, STRING, DATE):
            constants = [item.value for item in items if isinstance(item, n.Constant)]
            if len(constants) < len(items):
                raise Unproved
            series = pl.Series("", [value for value in constants if value is not None], DTYPES[operand.type])
            return _plain(operand, scope).is_in(series.implode()).fill_null(value=False)
        case n.IsNull(operand=operand):
            return _plain(operand, scope).is_null()
        case n.Not(operand=operand):
            return ~_condition(operand, scope)
        case n.Logical(operator=operator, operands=operands):
            conditions = [_condition(part, scope) for part in operands]
            return pl.all_horizontal(conditions) if operator == "AND" else pl.any_horizontal(conditions)
    raise Unproved


def _compared(operator: str, left: n.Typed, right: n.Typed, scope: FrameScope) -> pl.Expr:
    one, two = _plain(left, scope), _plain(right, scope)
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
    compared = OPERATORS[operator](one, two)
    if operator == "<>":
        return (compared | none) & one.is_not_null() & two.is_not_null()
    return (compared & ~none).fill_null(value=False)


def _like(node: n.Typed, scope: FrameScope) -> pl.Expr:
    if isinstance(node, n.Not):
        return ~_like(node.operand, scope)
    assert isinstance(node, n.Like)  # noqa: S101
    if not isinstance(node.pattern, n.Constant) or node.pattern.value is None:
        raise Unproved
    text, pattern = _plain(node.operand, scope), node.pattern.value
    held = pattern.strip("%")
    if not held or set(held) & {"%", "_", node.escape, *BREAKS}:
        return text.str.contains(_pattern(pattern, node.escape))
    first, last = pattern.startswith("%"), pattern.endswith("%")
    if first and last:
        matches = text.str.contains(held, literal=True)
    elif first or last:
        matches = text.str.ends_with(held) if first else text.str.starts_with(held)
    else:
        return text.eq(pl.lit(pattern))
    broken = scope.shared(f"line breaks in {text}", text.str.contains(f"[{''.join(map(_literal, BREAKS))}]"))
    return matches & ~pl.col(broken)  # % stands for no line break


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


# Compilation

ROWS = "rows"  # a column that every frame has, so that constants have as many rows


def back_end(expression: n.Typed) -> Literal["Polars", "Python"]:
    """Return the back end that an expression takes where rows come by the column."""
    if isinstance(expression, n.TypedColumn):
        return "Polars"
    return "Python" if polars_expression(expression, FrameScope()) is None else "Polars"


def explain(expressions: Sequence[n.Typed], names: Sequence[str]) -> list[str]:
    """Return one line for each expression: its name, its type and its back end.

    >>> from penstock.sql.types import STRING
    >>> explain([n.TypedColumn(STRING, 0)], ["NAME"])
    ['NAME STRING: Polars']
    """
    pairs = zip(expressions, names, strict=True)
    return [f"{name} {expression.type}: {back_end(expression)}" for expression, name in pairs]


def compile_columns(
    expressions: Sequence[n.Typed], errors: EvaluationErrors, names: Sequence[str] = ()
) -> Callable[[RowColumn], list[Column]]:
    """Compile expressions to a function of rows by the column, none of them null, that returns their columns.

    Each expression takes its own back end; the errors are reported as `compile_rows` reports them.

    >>> from penstock.sql.evaluate.typed import TypedColumn as Place, Comparison, Constant
    >>> from penstock.sql.types import BOOLEAN, INTEGER
    >>> above = Comparison(BOOLEAN, ">", Place(INTEGER, 0), Constant(INTEGER, 1))
    >>> rows = RowColumn([Column.of_items([1, 2, None])], 3)
    >>> [column.items() for column in compile_columns([above], EvaluationErrors())(rows)]
    [[False, True, False]]
    """
    return _Columns(expressions, errors, names).run


class _Columns:
    """Expressions of a row, sorted by what computes them."""

    def __init__(self, expressions: Sequence[n.Typed], errors: EvaluationErrors, names: Sequence[str]) -> None:
        self._expressions = tuple(expressions)
        self._errors = errors
        self._names = tuple(names) or tuple(f"expression {at + 1}" for at in range(len(self._expressions)))
        self._scope = FrameScope()
        self._vectors: dict[int, pl.Expr] = {}
        self._rest: list[int] = []
        for at, expression in enumerate(self._expressions):
            if isinstance(expression, n.TypedColumn):
                continue
            vector = polars_expression(expression, self._scope)
            if vector is None:
                self._rest.append(at)
            else:
                self._vectors[at] = vector.alias(str(at))
        self._by_row: dict[tuple[int, ...], Callable[[Any], Any]] = {}

    def run(self, rows: RowColumn) -> list[Column]:
        """Return the columns of the expressions."""
        columns: dict[int, Column] = {
            at: rows.columns[each.index] for at, each in enumerate(self._expressions) if isinstance(each, n.TypedColumn)
        }
        series = self._vectorised(rows)
        if series is None:
            columns.update(self._generated(rows, sorted([*self._vectors, *self._rest])))
        else:
            columns.update({at: Column.of_series(one) for at, one in series.items()})
            columns.update(self._generated(rows, self._rest))
        return [columns[at] for at in range(len(self._expressions))]

    def _vectorised(self, rows: RowColumn) -> dict[int, pl.Series] | None:
        """Return what Polars computes; None if these rows are not for it."""
        if not self._vectors:
            return {}
        columns: list[pl.Series] = [pl.Series(ROWS, np.zeros(len(rows), np.int8))]
        for index, kind in self._scope.kinds.items():
            series = typed_series(rows.columns[index], kind)
            if series is None:
                return None
            columns.append(series.alias(str(index)))
        frame = pl.DataFrame(columns)
        try:
            for name, each in self._scope.prepared.values():  # one by one: a later one may take an earlier one
                frame = frame.with_columns(each.alias(name))
            if self._scope.checks and not all(frame.select(_all(self._scope.checks.values())).row(0)):
                return None
            table = frame.select(ROWS, *self._vectors.values())
        except pl.exceptions.PolarsError:
            return None  # an expression that its engine refuses, such as one that is too large
        vectors = {at: table.get_column(str(at)).alias("") for at in self._vectors}
        for at, one in vectors.items():
            if spoils(self._expressions[at]) and (count := one.null_count()):
                self._errors.report(self._names[at], SqlValueError("an operand is null"), count)
        return vectors

    def _generated(self, rows: RowColumn, places: Sequence[int]) -> Iterable[tuple[int, Column]]:
        """Return what the generated code computes of the columns that it names."""
        if not places:
            return []
        chosen = [self._expressions[at] for at in places]
        function = self._by_row.get(tuple(places))
        if function is None:
            function = compile_rows(chosen, self._errors, [self._names[at] for at in places])
            self._by_row[tuple(places)] = function
        used: set[int] = set().union(*map(places_of, chosen))
        columns = [column.items() if at in used else repeat(None, len(rows)) for at, column in enumerate(rows.columns)]
        inputs = zip(*columns, strict=False) if columns else repeat((), len(rows))
        results = list(map(function, inputs))
        return [(at, Column.of_items([row[position] for row in results])) for position, at in enumerate(places)]


def _all(checks: Iterable[pl.Expr]) -> list[pl.Expr]:
    return [each.all(ignore_nulls=True).alias(str(at)) for at, each in enumerate(checks)]


def places_of(expression: n.Typed) -> set[int]:
    if isinstance(expression, n.TypedColumn):
        return {expression.index}
    indexes: set[int] = set().union(*(places_of(part) for part in parts(expression)))
    return indexes
