"""WHERE of a pull query to a lookup: by keys, by a range of keys, or a scan; refusals where a scan is not allowed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Any

from penstock.errors import SqlError
from penstock.sql.analyse.expressions import Library, typed_expression
from penstock.sql.analyse.fields import ClauseScope
from penstock.sql.analyse.plans import Read
from penstock.sql.analyse.statement_errors import refusal
from penstock.sql.catalog import Catalog
from penstock.sql.catalog.source import BOUNDS
from penstock.sql.evaluate import columns_in, compile_rows
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse.format_expressions import format_expression
from penstock.sql.parse.tokens import TextPosition
from penstock.sql.queries.plans import KeyLookup, Lookup, RangeLookup, Scan
from penstock.sql.queries.stores import FOREVER
from penstock.sql.types import BIGINT, DOUBLE, INTEGER, STRING, DecimalType, SqlType
from penstock.sql.types.sql_type import is_numeric

__all__ = ["Conditions", "lookup_of", "window_starts"]

MAX_DISJUNCTS = 64  # of AND over OR; more conditions are a scan
MAX_KEYS = 10_000
SCAN = "ksql.query.pull.table.scan.enabled"
RANGE = "ksql.query.pull.range.scan.enabled"
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Conditions:
    """A condition as alternatives, of which each is a list of conditions that must all hold.

    Attributes:
        alternatives: Nothing if there is no condition, or if it has too many.
        present: Whether there is a condition.
    """

    alternatives: tuple[tuple[Any, ...], ...] = ()
    present: bool = False

    @classmethod
    def of(cls, node: Any) -> Conditions:
        """Return the alternatives of a condition with qualified columns."""
        alternatives = _alternatives(node)
        return cls(() if alternatives is None else tuple(alternatives), present=True)


def _alternatives(node: Any) -> list[tuple[Any, ...]] | None:
    if isinstance(node, x.BetweenNode) and not node.negated:
        low = x.ComparisonNode(">=", node.operand, node.low, at=node.at)
        return [(low, x.ComparisonNode("<=", node.operand, node.high, at=node.at))]
    if not isinstance(node, x.LogicalNode):
        return [(node,)]
    parts = [_alternatives(operand) for operand in node.operands]
    if any(part is None for part in parts):
        return None
    disjunctions = [part for part in parts if part is not None]
    if node.operator == "OR":
        alternatives = [each for part in disjunctions for each in part]
    else:
        count = 1
        for part in disjunctions:
            count *= len(part)
        if count > MAX_DISJUNCTS:
            return None
        alternatives = [tuple(node for each in chosen for node in each) for chosen in product(*disjunctions)]
    return alternatives if len(alternatives) <= MAX_DISJUNCTS else None


@dataclass(frozen=True, slots=True)
class _Compared:
    """A condition that compares a column directly with constants."""

    column: x.ColumnNode
    operator: str
    constants: tuple[Any, ...]
    node: Any


def _compared(node: Any) -> _Compared | None:
    if isinstance(node, x.InNode) and not node.negated and isinstance(node.operand, x.ColumnNode):
        if any(columns_in(item) for item in node.items):
            return None
        return _Compared(node.operand, "=", node.items, node)
    if isinstance(node, x.ComparisonNode) and node.operator in FLIPPED:
        for side, other, operator in (
            (node.left, node.right, node.operator),
            (node.right, node.left, FLIPPED[node.operator]),
        ):
            if isinstance(side, x.ColumnNode) and not columns_in(other):
                return _Compared(side, operator, (other,), node)
    return None


class _Reader:
    """The conditions of one alternative that say something about the key."""

    def __init__(self, step: Read, library: Library) -> None:
        self.step = step
        self.library = library
        self.columns = [names[0] for names in step.key_names]

    def index_of(self, column: x.ColumnNode) -> int | None:
        """Return the index of a column in the key; None if it is not of the key."""
        return self.columns.index(column) if column in self.columns else None

    def of_key(self, alternative: Sequence[Any]) -> list[_Compared]:
        """Return the comparisons of key columns with constants."""
        comparisons = [compared for node in alternative if (compared := _compared(node)) is not None]
        return [compared for compared in comparisons if self.index_of(compared.column) is not None]

    def keys(self, alternative: Sequence[Any]) -> Iterator[tuple[Any, ...]] | None:
        """Return the keys that can meet the conditions; None if they leave a column of the key open."""
        values_by_column: list[list[Any] | None] = [None] * len(self.columns)
        for compared in self.of_key(alternative):
            index = self.index_of(compared.column)
            if compared.operator != "=" or index is None:
                continue
            values = self.values(compared, self.step.key[index])
            if values is None:
                return None
            earlier = values_by_column[index]
            values_by_column[index] = values if earlier is None else [value for value in earlier if value in values]
        if any(values is None for values in values_by_column) or not values_by_column:
            return None
        return product(*[values for values in values_by_column if values is not None])

    def values(self, compared: _Compared, kind: SqlType) -> list[Any] | None:
        """Return the constants as values of a type; those that it has not are left out. None: that cannot be said."""
        key_values = []
        for node in compared.constants:
            expression = typed_expression(node, ClauseScope((), "WHERE"), self.library)
            if expression.type == STRING and is_numeric(kind):
                column = f"{compared.column.name} {kind} KEY"
                raise refusal(
                    node.at, f"{format_expression(node)} can not be converted to the type of the key column: {column}"
                )
            value = compile_rows([expression.typed], EvaluationErrors())(())[0]
            if value is None:
                raise refusal(
                    node.at,
                    "Primary key columns can not be NULL: "
                    f"({compared.column.name} {compared.operator} {format_expression(node)})",
                )
            converted = _converted(value, expression.type, kind)
            if converted is _UNKNOWN:
                return None
            if converted is not None:
                key_values.append(converted)
        return key_values


_UNKNOWN = object()


def _converted(value: Any, written: SqlType, kind: SqlType) -> Any:
    """Return a constant as a value of a key's type; None if the type has no equal value."""
    if written == kind:
        return value
    if not (is_numeric(written) and is_numeric(kind)):
        return _UNKNOWN
    if kind in (INTEGER, BIGINT):
        if (isinstance(value, float) and not math.isfinite(value)) or value != int(value):
            return None
        low, high = (-(2**31), 2**31) if kind == INTEGER else (-(2**63), 2**63)
        return int(value) if low <= int(value) < high else None
    if kind == DOUBLE:
        return float(value)
    if isinstance(kind, DecimalType) and not isinstance(value, float):
        exact = Decimal(value)
        scaled = exact.quantize(Decimal(1).scaleb(-kind.scale))
        return scaled if scaled == exact else None
    return _UNKNOWN


def lookup_of(conditions: Conditions, step: Read, catalog: Catalog, library: Library, at: TextPosition) -> Lookup:
    """Return the rows of a table that must be read for a condition.

    Raises:
        SqlError: All rows would have to be read, and the settings do not allow it; or a constant is not a key.
    """
    reader = _Reader(step, library)
    if not catalog.flag(SCAN, otherwise=True):
        _check_each_once(conditions, reader)
    keys = _keys(conditions, reader, at)
    if keys is not None:
        return KeyLookup(tuple(keys))
    may_range = catalog.flag(RANGE, otherwise=True)
    ranged = _range(conditions, reader) if may_range else None
    if not catalog.flag(SCAN, otherwise=True):
        _check_no_scan(conditions, reader, ranged, at)
    return ranged or Scan()


def _keys(conditions: Conditions, reader: _Reader, at: TextPosition) -> Collection[tuple[Any, ...]] | None:
    """Return the keys that can meet one of the alternatives, each once; None if one of them leaves the key open."""
    keys: dict[str, tuple[Any, ...]] = {}
    for alternative in conditions.alternatives:
        more = reader.keys(alternative)
        if more is None:
            return None
        for key in more:
            keys[repr(key)] = key
            if len(keys) > MAX_KEYS:
                raise refusal(at, f"A pull query looks up at most {MAX_KEYS:,} keys at once.")
    return keys.values() if conditions.alternatives else None


def _range(conditions: Conditions, reader: _Reader) -> RangeLookup | None:
    """Return the range of keys of a text column, whose bytes are in the order of the texts."""
    step = reader.step
    if len(conditions.alternatives) != 1 or step.key != (STRING,) or step.key_format.name != "KAFKA" or step.window:
        return None
    lower: str | None = None
    upper: str | None = None
    for compared in reader.of_key(conditions.alternatives[0]):
        values = reader.values(compared, STRING)
        if compared.operator == "=" or not values:
            return None
        value = values[0]
        if compared.operator in (">", ">="):
            lower = value if lower is None else max(lower, value)
        else:
            upper = value if upper is None else min(upper, value)
    if lower is None and upper is None:
        return None
    return RangeLookup(None if lower is None else (lower,), None if upper is None else (upper,))


def _check_each_once(conditions: Conditions, reader: _Reader) -> None:
    """Refuse two comparisons of a key column, of which one would have to be checked on all rows."""
    for alternative in conditions.alternatives:
        compared = [each.column for each in reader.of_key(alternative)]
        if len(set(compared)) < len(compared):
            raise refusal(
                alternative[0].at,
                "A comparison condition on the key column cannot be combined with other comparisons such as an IN "
                f"predicate: {_text(alternative)}",
                f"SET '{SCAN}'='true'; allows it.",
            )


def _check_no_scan(conditions: Conditions, reader: _Reader, ranged: RangeLookup | None, at: TextPosition) -> None:
    hint = f"SET '{SCAN}'='true'; allows queries that read all rows of a table."
    needed = "Query requires table scan to be enabled"
    if not conditions.alternatives:
        raise refusal(at, f"{needed}: it has no WHERE clause that names keys.", hint)
    for alternative in conditions.alternatives:
        where = alternative[0].at
        of_key = reader.of_key(alternative)
        if not of_key:
            raise _without_key(alternative, reader, hint)
        if len({compared.column for compared in of_key}) < len(reader.columns):
            raise refusal(where, "Multi-column sources must specify every key in the WHERE clause.", hint)
        if any(compared.operator != "=" for compared in of_key) and ranged is None:
            raise refusal(where, f"{needed}: {_text(alternative)} is a range of keys.", hint)


def _without_key(alternative: Sequence[Any], reader: _Reader, hint: str) -> SqlError:
    for node in alternative:
        if not any(reader.index_of(column) is not None for column in columns_in(node)):
            continue
        sides = (node.left, node.right) if isinstance(node, x.ComparisonNode) else ()
        operand = node.operand if isinstance(node, x.InNode) else None
        if any(isinstance(side, x.ColumnNode) and reader.index_of(side) is not None for side in (*sides, operand)):
            reason = "A comparison must be between a key column and a resolvable expression."
        else:
            reason = "A comparison must directly reference a key column."
        return refusal(node.at, f"{reason} This is {format_expression(node)}.", hint)
    return refusal(alternative[0].at, f"WHERE clause missing key column for disjunct: ({_text(alternative)})", hint)


def _text(alternative: Sequence[Any]) -> str:
    return " AND ".join(format_expression(node) for node in alternative)


def window_starts(conditions: Conditions, step: Read, library: Library) -> tuple[int, int]:
    """Return the first and the last start, in milliseconds, of the windows that can meet a condition."""
    low, high = 0, FOREVER
    if step.window is None or len(conditions.alternatives) != 1:
        return low, high
    for node in conditions.alternatives[0]:
        compared = _compared(node)
        if compared is None or compared.column.name not in BOUNDS or len(compared.constants) != 1:
            continue
        size = 0
        if compared.column.name == "WINDOWEND":
            if step.window.size_ms is None:
                continue
            size = step.window.size_ms
        expression = typed_expression(compared.constants[0], ClauseScope((), "WHERE"), library)
        if expression.type not in (INTEGER, BIGINT):
            continue  # a text: the condition itself converts it
        value = compile_rows([expression.typed], EvaluationErrors())(())[0]
        if value is None:
            continue
        start = int(value) - size
        if compared.operator in (">", ">=", "="):
            low = max(low, start + (compared.operator == ">"))
        if compared.operator in ("<", "<=", "="):
            high = min(high, start - (compared.operator == "<"))
    return low, high
