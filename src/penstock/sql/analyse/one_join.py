"""One join by one condition: its sides, its type, the keys that they get."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.sql.analyse.composite import Pair
from penstock.sql.analyse.expressions import Library, typed_expression
from penstock.sql.analyse.fields import ClauseScope, RowField, qualified
from penstock.sql.analyse.formats import check_key_types
from penstock.sql.analyse.join_keys import with_own_key
from penstock.sql.analyse.plans import (
    Expression,
    JoinForeign,
    JoinStreams,
    JoinStreamTable,
    JoinTables,
    JoinTimes,
    PlanStep,
    Read,
    Rekey,
)
from penstock.sql.analyse.reads import milliseconds
from penstock.sql.analyse.statement_errors import refusal
from penstock.sql.catalog import Catalog, DataFormat
from penstock.sql.evaluate import columns_in
from penstock.sql.formats import format_info
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import query_nodes as q
from penstock.sql.parse.format_expressions import format_expression
from penstock.sql.types.sql_type import quoted

__all__ = ["KINDS", "OneJoin"]

KINDS = {
    "INNER": "[INNER] JOIN",
    "LEFT": "LEFT [OUTER] JOIN",
    "RIGHT": "RIGHT [OUTER] JOIN",
    "FULL": "[FULL] OUTER JOIN",
}


@dataclass(frozen=True, slots=True)
class _Sides:
    """The two sides of a join's condition, that of the left source first."""

    left: Any
    right: Any
    text: str


@dataclass(frozen=True, slots=True)
class OneJoin:
    """One join: what stands left of it, the source to its right, and the clause."""

    catalog: Catalog
    library: Library
    left: PlanStep
    right: Read
    join: q.JoinClause

    def pair(self) -> Pair:
        """Return the sides of the condition, typed."""
        sides = self._sides()
        left, right = self._typed(sides)
        self._check_types(left, right)
        return Pair(sides.left, sides.right, left, right)

    def fitness(self) -> int:
        """Return how well the condition fits the keys of both sides: 2 for the right one, 1 for the left one."""
        sides = self._sides()
        return 2 * self._is_key(self.right, sides.right) + self._is_key(self.left, sides.left)

    def _check_types(self, left: Expression, right: Expression) -> None:
        if left.type != right.type:
            raise refusal(
                self.join.condition.at,
                f"The join condition compares two types: {left.text} is {left.type}, {right.text} is {right.type}.",
                "Cast one side.",
            )
        check_key_types([("ROWKEY", left.type)], self.join.condition.at)

    def step(self, joins: tuple[q.JoinClause, ...], number: int, prefix: str) -> PlanStep:
        """Return the step of the join."""
        self._check_windows()
        sides = self._sides()
        left, right = self._typed(sides)
        self._check_types(left, right)
        if self.left.is_table and not self.right.is_table:
            raise self._refused(
                "order", "a table is joined to a stream; the stream of a stream-table join stands first"
            )
        if not self.right.is_table:
            return self._streams(sides, left, right, prefix)
        if self.join.within is not None:
            raise refusal(
                self.join.within.at,
                f"A window definition was provided for a {'Table' if self.left.is_table else 'Stream'}-Table join. "
                "These joins are not windowed.",
                "Drop the window definition (WITHIN).",
            )
        if not self.left.is_table:
            return self._stream_table(sides, left, prefix)
        return self._tables(sides, left, len(joins) > 1 and number > 0)

    def _sides(self) -> _Sides:
        condition = self.join.condition
        if not isinstance(condition, x.ComparisonNode) or condition.operator != "=":
            raise refusal(
                condition.at,
                f"Unsupported join expression: {format_expression(condition)}. Only comparisons by = can be joined on.",
            )
        names = ClauseScope((*self.left.fields, *self.right.fields), "JOIN ON")
        one, two = qualified(condition.left, names), qualified(condition.right, names)
        text = f"{format_expression(one)} = {format_expression(two)}"
        owners = [{c.source for c in columns_in(side) if c.source} for side in (one, two)]
        for side, owner in zip((condition.left, condition.right), owners, strict=True):
            if len(owner) != 1:
                raise refusal(
                    side.at,
                    f"The side '{format_expression(side)}' of the join condition '({text})' has columns of "
                    f"{len(owner)} sources, and must name exactly one source.",
                )
        first, second = owners[0].pop(), owners[1].pop()
        if first == second:
            raise refusal(
                condition.at,
                "Both sides of the join condition are of the same source: left "
                f"{quoted(str(first))}, right {quoted(str(second))}",
            )
        if second == self.right.alias:
            return _Sides(one, two, text)
        if first == self.right.alias:
            return _Sides(two, one, text)
        raise refusal(
            condition.at,
            f"The join condition does not name the joined source {quoted(self.right.alias)}: the left side is of "
            f"{quoted(str(first))}, the right side of {quoted(str(second))}",
        )

    def _typed(self, sides: _Sides) -> tuple[Expression, Expression]:
        left = typed_expression(sides.left, ClauseScope(self.left.fields, "JOIN ON"), self.library)
        return left, typed_expression(sides.right, ClauseScope(self.right.fields, "JOIN ON"), self.library)

    def _streams(self, sides: _Sides, left: Expression, right: Expression, prefix: str) -> PlanStep:
        within = self.join.within
        if within is None:
            raise refusal(
                self.join.at,
                "Stream-Stream joins must have a WITHIN clause specified. None was provided.",
                "For example JOIN ... WITHIN 5 MINUTES ON ...",
            )
        grace = None if within.grace is None else milliseconds(within.grace)
        times = JoinTimes(milliseconds(within.before), milliseconds(within.after), grace)
        one = self._keyed(self.left, sides.left, left, f"{prefix}LeftSourceKeyed")
        two = self._keyed(self.right, sides.right, right, f"{prefix}RightSourceKeyed")
        one, two = self._same_format(one, two, (left, right), prefix)
        self._check_partitions(one, two)
        fields, names, kinds = self._result(sides)
        return JoinStreams(
            fields=fields,
            key=(left.type,),
            key_format=one.key_format,
            is_table=False,
            window=self.left.window,
            key_names=names,
            key_word=kinds,
            left=one,
            right=two,
            kind=self.join.kind,
            times=times,
            name=f"{prefix}Join",
        )

    def _stream_table(self, sides: _Sides, left: Expression, prefix: str) -> PlanStep:
        if self.join.kind not in ("INNER", "LEFT"):
            word = {"RIGHT": "right-outer", "FULL": "full-outer"}[self.join.kind]
            raise self._refused("type", f"a stream-table join cannot be {word}")
        if not self._is_key(self.right, sides.right):
            raise self._condition("a stream-table join compares with the primary key of the table", sides)
        one = self._keyed(self.left, sides.left, left, f"{prefix}LeftSourceKeyed")
        if one.key_format.name != self.right.key_format.name and not isinstance(one, Rekey):
            one = self._rekeyed(one, sides.left, left, f"{prefix}LeftSourceKeyed")
        one = replace(one, key_format=self.right.key_format) if isinstance(one, Rekey) else one
        self._check_partitions(one, self.right)
        fields, names, kinds = self._result(sides)
        inherited = self.left.key_format if self.left.key_format.name != "NONE" else one.key_format
        return JoinStreamTable(
            fields=fields,
            key=(left.type,),
            key_format=inherited,
            is_table=False,
            window=self.left.window,
            key_names=names,
            key_word=kinds,
            left=one,
            right=self.right,
            kind=self.join.kind,
            name=f"{prefix}Join",
        )

    def _tables(self, sides: _Sides, left: Expression, later: bool) -> PlanStep:  # noqa: FBT001
        if not self._is_key(self.right, sides.right):
            raise self._condition("a table-table join compares with the right table's primary key", sides)
        if self._is_key(self.left, sides.left):
            self._check_partitions(self.left, self.right)
            fields, names, kinds = self._result(sides)
            return JoinTables(
                fields=fields,
                key=(left.type,),
                key_format=self.left.key_format,
                is_table=True,
                key_names=names,
                key_word=kinds,
                left=self.left,
                right=self.right,
                kind=self.join.kind,
            )
        if later:
            raise self._condition("a foreign-key join of tables stands alone, not within n-way joins", sides)
        if self.join.kind not in ("INNER", "LEFT"):
            word = {"RIGHT": "right-outer", "FULL": "full-outer"}[self.join.kind]
            raise self._refused("type", f"a foreign-key join of tables cannot be {word}")
        if self.left.window is not None or self.right.window is not None:
            raise self._refused("type", "foreign-key joins of tables are not supported on windowed tables")
        return JoinForeign(
            fields=(*self.left.fields, *self.right.fields),
            key=self.left.key,
            key_format=self.left.key_format,
            is_table=True,
            key_names=self.left.key_names,
            key_word="foreign-key join",
            left=self.left,
            right=self.right,
            kind=self.join.kind,
            foreign_key=left,
        )

    def _result(self, sides: _Sides) -> tuple[tuple[RowField, ...], tuple[tuple[x.Expression, ...], ...], str]:
        """Return the columns of the joined rows, the expressions that have the key's value, and the word for these."""
        fields = (*self.left.fields, *self.right.fields)
        before = self.left.key_names[0] if len(self.left.key_names) == 1 else ()
        same = before if sides.left in before else (sides.left,)
        names = (*same, sides.right)
        if self.join.kind == "FULL" or not any(isinstance(side, x.ColumnNode) for side in names):
            kind = typed_expression(sides.right, ClauseScope(fields, "JOIN ON"), self.library).type
            fields, (own,) = with_own_key(fields, [kind])
            also = () if self.join.kind == "FULL" else names
            return fields, ((*own, *also),), "join expression"
        return fields, (names,), "join expression"

    def _keyed(self, step: PlanStep, side: Any, expression: Expression, name: str) -> PlanStep:
        return step if self._is_key(step, side) else self._rekeyed(step, side, expression, name)

    def _rekeyed(self, step: PlanStep, side: Any, expression: Expression, name: str) -> PlanStep:
        if step.window is not None:
            raise refusal(side.at, "A windowed source would need repartitioning, which windowed keys rule out.")
        form = step.key_format
        if form.name == "NONE":
            form = DataFormat(self.catalog.setting("ksql.persistence.default.format.key", "KAFKA").upper())
        return Rekey(
            fields=step.fields,
            key=(expression.type,),
            key_format=form,
            is_table=False,
            key_names=((side,),),
            above=step,
            expressions=(expression,),
            name=name,
        )

    def _same_format(
        self, one: PlanStep, two: PlanStep, keys: tuple[Expression, Expression], prefix: str
    ) -> tuple[PlanStep, PlanStep]:
        """Return the two sides with keys in the same bytes.

        One of them is sent through a topic if their formats differ.
        """
        if one.key_format.name == two.key_format.name:
            return one, two
        if isinstance(two, Rekey):
            return one, replace(two, key_format=one.key_format)
        if isinstance(one, Rekey):
            return replace(one, key_format=two.key_format), two
        moved = self._rekeyed(two, self.join.condition, keys[1], f"{prefix}RightSourceKeyed")
        return one, replace(moved, key_format=one.key_format)

    @staticmethod
    def _is_key(step: PlanStep, side: Any) -> bool:
        return len(step.key_names) == 1 and side in step.key_names[0]

    def _check_windows(self) -> None:
        left, right = self.left.window, self.right.window
        if self.right.is_table:
            return
        if (left is None) != (right is None):
            raise refusal(
                self.join.at,
                "One source of the join is windowed, the other non-windowed: "
                f"the left is {left.kind if left else 'not'} windowed, {quoted(self.right.alias)} is "
                f"{right.kind if right else 'not'} windowed",
            )
        if left and right and (left.kind == "SESSION") != (right.kind == "SESSION"):
            raise refusal(
                self.join.at,
                f"Windowed sources are incompatible: the left source is {left.kind}, the right source {right.kind}. "
                "SESSION windows join with SESSION windows alone",
            )
        moved = format_info(self.left.key_format.name).infers  # keys with schemas are written anew for a join anyhow
        if left and right and left.size_ms != right.size_ms and not moved:
            raise refusal(self.join.at, "A windowed source would need repartitioning, which windowed keys rule out.")

    def _check_partitions(self, one: PlanStep, two: PlanStep) -> None:
        left, right = _partitions(one, self.catalog), _partitions(two, self.catalog)
        if left is not None and right is not None and left[1] != right[1]:
            raise refusal(
                self.join.at,
                "The sources of a join need equal numbers of partitions: "
                f"{quoted(left[0])} has {left[1]} partitions, {quoted(right[0])} has {right[1]}.",
                "Repartition one of them with PARTITION BY into a stream of as many partitions.",
            )

    def _refused(self, what: str, reason: str) -> Exception:
        left = self.left.alias if isinstance(self.left, Read) else _first(self.left).alias
        got = f"{left} {KINDS[self.join.kind]} {self.right.alias}"
        return refusal(self.join.at, f"Wrong join {what} in {got}: {reason}.")

    def _condition(self, reason: str, sides: _Sides) -> Exception:
        return refusal(self.join.condition.at, f"Wrong join condition {sides.text}: {reason}.")


def _first(step: PlanStep) -> Read:
    while not isinstance(step, Read):
        step = getattr(step, "left", None) or step.above  # type: ignore[attr-defined]
    return step


def _partitions(step: PlanStep, catalog: Catalog) -> tuple[str, int] | None:
    """Return the source whose partitions the rows of a step have, and their number if it is known."""
    while isinstance(step, JoinStreams | JoinStreamTable | JoinTables | JoinForeign):
        step = step.left
    if not isinstance(step, Read):
        return None
    count = catalog.topics.get(step.source.topic) or step.source.partitions
    return None if count is None else (step.source.name, count)
