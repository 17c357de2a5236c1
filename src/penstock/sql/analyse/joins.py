"""FROM with joins: one join after the other, their keys, and those that no joined column has in every row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.sql.analyse.definitions import check_key_types
from penstock.sql.analyse.expressions import Library, predicate, typed_expression
from penstock.sql.analyse.fields import ClauseScope, RowField, qualified
from penstock.sql.analyse.plans import (
    Derived,
    Expression,
    FilterStep,
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
from penstock.sql.analyse.statement_errors import named, refusal
from penstock.sql.catalog import Catalog, DataFormat
from penstock.sql.evaluate import columns_in
from penstock.sql.formats import format_info
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.formatting import format_expression
from penstock.sql.types import SqlType
from penstock.sql.types.sql_type import quoted

__all__ = ["From", "from_clause"]

# Keys that no joined column has

NAME = "ROWKEY"


def with_own_key(
    fields: Sequence[RowField], kinds: Sequence[SqlType]
) -> tuple[tuple[RowField, ...], tuple[tuple[x.Expression, ...], ...]]:
    """Add the columns of a join's own key, and return the expressions that name each of them.

    One column is called ROWKEY, several are ROWKEY_1, ROWKEY_2 and so on; names that the sources have are left out.

    Args:
        fields: The columns of the joined rows.
        kinds: The types of the key's columns.
    """
    fields = [_hidden(field) for field in fields]
    taken = {field.name for field in fields}
    added: list[RowField] = []
    number = 1 if len(kinds) > 1 else 0
    for kind in kinds:
        while (name := f"{NAME}_{number}" if number else NAME) in taken:
            number += 1
        number += 1
        added.append(RowField(name, kind, None, "COMPUTED"))
    return (*fields, *added), tuple((x.ColumnNode(field.name),) for field in added)


def _hidden(field: RowField) -> RowField:
    """Return the key that an earlier join made is not a column behind a later one that makes its own."""
    return replace(field, name=f"{field.name} of a join before") if field.role == "COMPUTED" else field


# Several joins at once

BY_PLACE = ("DELIMITED", "KAFKA")  # formats of keys in whose bytes the names of columns do not stand


class Pair(NamedTuple):
    """The two sides of one equality, qualified and typed."""

    left: Any
    right: Any
    left_typed: Expression
    right_typed: Expression


@dataclass(frozen=True, slots=True)
class Composite:
    """A join by several equalities."""

    left: PlanStep
    right: Read
    join: s.JoinClause
    pairs: tuple[Pair, ...]

    def step(self, prefix: str) -> PlanStep:
        """Return the step of the join.

        Raises:
            SqlError: A side cannot have such a key.
        """
        for pair in self.pairs:
            if self.join.kind != "FULL" and not (
                any(isinstance(side, x.ColumnNode) for side in (pair.left, pair.right))
            ):
                raise self._refused("Each condition of a join by several has a column on one side at least")
        if not self.right.is_table:
            return self._streams(prefix)
        ordered = self._by_key_of_table()
        return self._tables(ordered) if self.left.is_table else self._stream_table(ordered, prefix)

    def _streams(self, prefix: str) -> PlanStep:
        within = self.join.within
        if within is None:
            raise self._refused(
                "Stream-Stream joins must have a WITHIN clause specified. None was provided",
                "For example JOIN ... WITHIN 5 MINUTES ON ...",
            )
        if self.left.window is not None or self.right.window is not None:
            raise self._refused("Windowed sources are joined by their key alone")
        grace = None if within.grace is None else milliseconds(within.grace)
        names = self._names()
        left = [(pair.left, pair.left_typed) for pair in self.pairs]
        right = [(pair.right, pair.right_typed) for pair in self.pairs]
        one = _rekeyed(self.left, left, names, DataFormat("JSON"), f"{prefix}LeftSourceKeyed")
        two = _rekeyed(self.right, right, names, DataFormat("JSON"), f"{prefix}RightSourceKeyed")
        return JoinStreams(
            **self._result(self.pairs, one),
            is_table=False,
            left=one,
            right=two,
            times=JoinTimes(milliseconds(within.before), milliseconds(within.after), grace),
            name=f"{prefix}Join",
        )

    def _names(self) -> list[str]:
        """Return names for the columns of the key, the same on both sides, as they stand in its bytes."""
        names: list[str] = []
        for number, pair in enumerate(self.pairs):
            column = pair.left if isinstance(pair.left, x.ColumnNode) else pair.right
            name = column.name if isinstance(column, x.ColumnNode) else f"KEY_{number}"
            names.append(name if name not in names else f"KEY_{number}")
        return names

    def _by_key_of_table(self) -> tuple[Pair, ...]:
        """Return the equalities in the order of the table's key, each column of which must be in one."""
        ordered_pairs = []
        for names in self.right.key_names:
            pair = next((pair for pair in self.pairs if pair.right in names), None)
            if pair is None:
                break
            ordered_pairs.append(pair)
        if len(ordered_pairs) != len(self.pairs) or len(ordered_pairs) != len(self.right.key_names):
            keys = named([format_expression(names[0]) for names in self.right.key_names])
            raise self._refused(f"A join with the table {self.right.alias} compares its primary key, which is {keys}")
        return tuple(ordered_pairs)

    def _stream_table(self, pairs: tuple[Pair, ...], prefix: str) -> PlanStep:
        if self.join.kind not in ("INNER", "LEFT"):
            raise self._refused("A stream-table join is an inner or a left one")
        names = [column.name for column in self.right.source.keys]
        left = [(pair.left, pair.left_typed) for pair in pairs]
        one = _rekeyed(self.left, left, names, self.right.key_format, f"{prefix}LeftSourceKeyed")
        return JoinStreamTable(
            **self._result(pairs, one), is_table=False, left=one, right=self.right, name=f"{prefix}Join"
        )

    def _tables(self, pairs: tuple[Pair, ...]) -> PlanStep:
        own = [name.name for names in self.left.key_names for name in names[:1] if isinstance(name, x.ColumnNode)]
        if len(own) != len(pairs) or any(pair.left not in self.left.key_names[i] for i, pair in enumerate(pairs)):
            raise self._refused("A join of tables by several columns compares the whole primary keys, in their order")
        theirs = [column.name for column in self.right.source.keys]
        same = self.left.key_format == self.right.key_format
        if not same or (own != theirs and self.left.key_format.name not in BY_PLACE):
            raise self._refused(
                "The primary keys of the tables have other names or formats, and hence other bytes",
                "Create one of them again by CREATE TABLE ... AS with the names of the other.",
            )
        return JoinTables(**self._result(pairs, self.left), is_table=True, left=self.left, right=self.right)

    def _result(self, pairs: Sequence[Pair], keyed: PlanStep) -> dict[str, Any]:
        fields = (*self.left.fields, *self.right.fields)
        kinds = tuple(pair.left_typed.type for pair in pairs)
        names: tuple[tuple[x.Expression, ...], ...] = tuple((pair.left, pair.right) for pair in pairs)
        if self.join.kind == "FULL":
            fields, names = with_own_key(fields, kinds)
        return {
            "fields": fields,
            "key": kinds,
            "key_format": keyed.key_format,
            "key_names": names,
            "key_word": "join expression",
            "kind": self.join.kind,
        }

    def _refused(self, reason: str, hint: str = "") -> Exception:
        return refusal(self.join.condition.at, f"{reason}.", hint)


def _rekeyed(
    step: PlanStep, sides: Sequence[tuple[Any, Expression]], names: Sequence[str], form: DataFormat, name: str
) -> Rekey:
    """Return a stream under a key of several columns; rows with a null in it are left out."""
    columns = [(x.ColumnNode(each), node) for each, (node, _) in zip(names, sides, strict=True)]
    return Rekey(
        fields=step.fields,
        key=tuple(typed.type for _, typed in sides),
        key_format=form,
        is_table=False,
        key_names=tuple(columns),
        above=step,
        expressions=tuple(typed for _, typed in sides),
        name=name,
        whole=True,
    )


# One join

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
    join: s.JoinClause

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

    def step(self, joins: tuple[s.JoinClause, ...], number: int, prefix: str) -> PlanStep:
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


# FROM

MOST_EQUALITIES = 10


@dataclass(frozen=True, slots=True)
class From:
    """The rows that a query starts with.

    Attributes:
        reads: All sources, in order.
    """

    step: PlanStep
    reads: tuple[Read, ...]


def from_clause(query: s.Query, catalog: Catalog, library: Library, read: Callable[[s.Relation], Read]) -> From:
    """Read the sources of a query, and join them.

    Args:
        query: The query.
        catalog: Sources and settings.
        library: The functions.
        read: Makes the step that reads a source or a subquery.

    Raises:
        SqlError: A source does not exist, or a join cannot be done.
    """
    first = read(query.source)
    reads = [first]
    step: PlanStep = first
    for number, join in enumerate(query.joins):
        right = read(join.right)
        _check_new(right, reads, join)
        joined = _Joined(catalog, library, step, right, join)
        step = joined.step(query.joins, number, "L_" * (len(query.joins) - number - 1))
        reads.append(right)
    return From(
        step, tuple(source for each in reads for source in (each.reads if isinstance(each, Derived) else (each,)))
    )


def _check_new(right: Read, reads: list[Read], join: s.JoinClause) -> None:
    for earlier in reads:
        if earlier.source.name == right.source.name:
            if len(reads) == 1:
                raise refusal(
                    join.right.at,
                    f"'{earlier.source.name}' is joined with itself; self joins cannot be run.",
                )
            raise refusal(
                join.right.at,
                f"The source '{right.source.name}' is more than once in these n-way joins",
            )
        if earlier.alias == right.alias:
            raise refusal(join.right.at, f"Two sources have the alias {right.alias}")


@dataclass(frozen=True, slots=True)
class _Joined:
    """One join: what stands left of it, the source to its right, and the clause with all its conditions."""

    catalog: Catalog
    library: Library
    left: PlanStep
    right: Read
    join: s.JoinClause

    def step(self, joins: tuple[s.JoinClause, ...], number: int, prefix: str) -> PlanStep:
        """Return the step of the join, and of the conditions that go beyond one equality."""
        names = ClauseScope((*self.left.fields, *self.right.fields), "JOIN ON")
        condition = join_condition(self.join.condition, names, self.right.alias)
        if len(condition.equalities) == 1 and condition.rest is None:
            return self._by(self.join).step(joins, number, prefix)
        if condition.rest is not None and self.join.kind != "INNER":
            raise refusal(
                condition.rest.at,
                f"{KINDS[self.join.kind]} takes only comparisons by =; further conditions are for inner joins.",
                "WHERE takes conditions on the joined rows.",
            )
        keyed_by_several = self.right.is_table and len(self.right.key) > 1
        if self.join.kind == "INNER" and not keyed_by_several:
            return self._filtered(condition, joins, number, prefix)
        if len(condition.equalities) == 1:
            return self._by(self.join).step(joins, number, prefix)
        pairs = [one.pair() for one in self._by_each(condition)]
        step = Composite(self.left, self.right, self.join, tuple(pairs)).step(prefix)
        return step if condition.rest is None else self._kept(step, condition.rest)

    def _by(self, join: s.JoinClause) -> OneJoin:
        return OneJoin(self.catalog, self.library, self.left, self.right, join)

    def _by_each(self, condition: JoinCondition) -> list[OneJoin]:
        return [self._by(replace(self.join, condition=each)) for each in condition.equalities]

    def _filtered(
        self, condition: JoinCondition, joins: tuple[s.JoinClause, ...], number: int, prefix: str
    ) -> PlanStep:
        """Return an inner join by the equality that moves least, whose rows must meet all the others."""
        best = max(self._by_each(condition), key=lambda one: one.fitness())
        step = best.step(joins, number, prefix)
        rest = [each for each in condition.equalities if each is not best.join.condition]
        for each in (*rest, *(() if condition.rest is None else (condition.rest,))):
            step = self._kept(step, each)
        return step

    def _kept(self, step: PlanStep, condition: Any) -> PlanStep:
        names = ClauseScope(step.fields, "JOIN ON")
        typed_condition = predicate(qualified(condition, names), names, self.library)
        return FilterStep(
            fields=step.fields,
            key=step.key,
            key_format=step.key_format,
            is_table=step.is_table,
            window=step.window,
            key_names=step.key_names,
            key_word=step.key_word,
            above=step,
            predicate=typed_condition,
        )


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """ON in parts.

    Attributes:
        equalities: Comparisons by ``=`` of one source each.
        rest: Further conditions, as one; None without any.
    """

    equalities: tuple[x.ComparisonNode, ...]
    rest: Any = None


def join_condition(condition: Any, names: ClauseScope, right: str) -> JoinCondition:
    """Take the condition of a join apart. A single comparison stays as it is, whatever it compares.

    Args:
        condition: The condition.
        names: The columns of both sides.
        right: The alias of the source to the right.

    Raises:
        SqlError: No part of it compares the two sides by ``=``.
    """
    parts = _conjuncts(condition)
    if len(parts) == 1:
        return JoinCondition((condition,))
    equal = [part for part in parts if _joins(part, names, right)]
    rest = [part for part in parts if part not in equal]
    if not equal:
        raise refusal(
            condition.at,
            "Unsupported join expression: none of its conditions compares a column of each side by =.",
        )
    if len(equal) > MOST_EQUALITIES:
        raise refusal(condition.at, f"A join compares at most {MOST_EQUALITIES} pairs of columns.")
    left_over = None if not rest else rest[0] if len(rest) == 1 else x.LogicalNode("AND", tuple(rest), at=rest[0].at)
    return JoinCondition(tuple(equal), left_over)


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, x.LogicalNode) and condition.operator == "AND":
        return [part for operand in condition.operands for part in _conjuncts(operand)]
    return [condition]


def _joins(part: Any, names: ClauseScope, right: str) -> bool:
    """Return whether a condition compares the joined source with one other by ``=``."""
    if not isinstance(part, x.ComparisonNode) or part.operator != "=":
        return False
    owners = [{column.source for column in columns_in(qualified(side, names))} for side in (part.left, part.right)]
    return all(len(owner) == 1 for owner in owners) and owners[0] != owners[1] and {right} in owners
