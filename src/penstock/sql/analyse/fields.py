"""The columns of a row at one point of a query, and the names that find them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as parts_of
from typing import Any, Literal

from penstock.base.nearest_name import did_you_mean
from penstock.sql.analyse.statement_errors import named, refusal
from penstock.sql.evaluate import typed
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse.dialects import OTHER_FUNCTIONS
from penstock.sql.parse.expression_nodes import Node
from penstock.sql.parse.statement_nodes import UNIT_WORDS, UNITS
from penstock.sql.parse.tokens import TextPosition
from penstock.sql.types import SqlType

__all__ = ["ClauseScope", "FieldRole", "RowField", "qualified"]

# The functions whose first argument is a unit of time, where its words are not columns.
WITH_UNITS = frozenset({"DATEADD", "DATESUB", "TIMEADD", "TIMESUB", "TIMESTAMPADD", "TIMESTAMPSUB"})
FieldRole = Literal["KEY", "VALUE", "HEADER", "PSEUDO", "BOUND", "COMPUTED"]


@dataclass(frozen=True, slots=True)
class RowField:
    """A column of the rows at one point of a query.

    Attributes:
        source: The alias of its source; None for what the query computed.
        role: COMPUTED for the results of table functions and aggregates, and synthetic keys.
    """

    name: str
    type: SqlType
    source: str | None = None
    role: FieldRole = "VALUE"

    def __str__(self) -> str:
        return f"{self.source}.{self.name}" if self.source else self.name


class ClauseScope:
    """The scope of the expressions of one clause: which column a name means.

    Args:
        fields: The columns of the row.
        clause: The clause for messages: SELECT, WHERE, ...
        bounds: Why window bounds cannot be named, if they cannot.
    """

    def __init__(self, fields: Sequence[RowField], clause: str, *, bounds: str = "") -> None:
        self.fields = tuple(fields)
        self.clause = clause
        self._bounds = bounds
        self._places: dict[tuple[str | None, str], int] = {}
        self._by_name: dict[str, list[int]] = {}
        for index, field in enumerate(self.fields):
            self._places.setdefault((field.source, field.name), index)
            self._by_name.setdefault(field.name, []).append(index)
        self.sources = tuple(dict.fromkeys(field.source for field in self.fields if field.source))

    def column(self, source: str | None, name: str, at: TextPosition) -> typed.TypedColumn:
        """Return the column of a name; see `penstock.sql.evaluate.typed.Scope`."""
        index = self.place(source, name, at)
        return typed.TypedColumn(self.fields[index].type, index, at=at)

    def place(self, source: str | None, name: str, at: TextPosition) -> int:
        """Return the place of a column in the row.

        Raises:
            SqlError: There is none of that name, or there are several.
        """
        if source is not None:
            if (index := self._places.get((source, name))) is not None:
                return index
            if source not in self.sources:
                raise refusal(
                    at,
                    f"No stream, table or alias of this query has the name '{source}'",
                    f"The sources of this query are {named(self.sources)}." if self.sources else "",
                )
        indexes = self._by_name.get(name, []) if source is None else []
        if len(indexes) == 1:
            return indexes[0]
        if indexes:
            among = named([str(self.fields[index]) for index in indexes], "or")
            raise refusal(at, f"Column '{name}' is ambiguous: it is in {among}", "Write the source before it.")
        written = f"{source}.{name}" if source else name
        if self._bounds and name in ("WINDOWSTART", "WINDOWEND"):
            raise refusal(at, self._bounds.format(name=name))
        hint = did_you_mean(name, [f.name for f in self.fields if f.source == source or source is None])
        if not hint and source is None:
            text = "Text is written in single quotes; double quotes and backquotes are for names."
            hint = OTHER_FUNCTIONS.get(name, "" if name == name.upper() else text)
        raise refusal(at, f"{self.clause} names the column '{written}', which no source has", hint)


def qualified(node: Any, names: ClauseScope, bound: frozenset[str] = frozenset()) -> Any:
    """Return an expression with the source before each column, so that equal columns are equal nodes.

    Raises:
        SqlError: A column does not exist or is ambiguous.
    """
    if isinstance(node, tuple):
        return tuple(qualified(item, names, bound) for item in node)
    if not isinstance(node, Node):
        return node
    if isinstance(node, x.ColumnNode):
        if node.source is None and node.name in bound:
            return node
        field = names.fields[names.place(node.source, node.name, node.at)]
        return x.ColumnNode(field.name, field.source, at=node.at)
    if isinstance(node, x.LambdaNode):
        bound = bound | set(node.parameters)
    if isinstance(node, x.CallNode) and node.name.upper() in WITH_UNITS and node.arguments:
        unit, *rest = node.arguments
        return replace(node, arguments=(_unit(unit, names, bound), *qualified(tuple(rest), names, bound)))
    old = {part.name: getattr(node, part.name) for part in parts_of(node) if part.name != "at"}
    return replace(node, **{name: qualified(value, names, bound) for name, value in old.items()})


def _unit(node: Any, names: ClauseScope, bound: frozenset[str]) -> Any:
    """Return the word of a unit of time as it is; another column of that place is refused by its type.

    Raises:
        SqlError: The word is neither a unit nor a column.
    """
    if not isinstance(node, x.ColumnNode) or node.source is not None:
        return qualified(node, names, bound)
    if node.name in UNIT_WORDS:
        return node
    if all(field.name != node.name for field in names.fields):
        raise refusal(
            node.at, f"'{node.name}' is not a unit of time", f"Units are {named([f'{unit}S' for unit in UNITS])}."
        )
    return qualified(node, names, bound)
