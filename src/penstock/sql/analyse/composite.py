"""Joins by several columns at once: the key of both sides is made of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.sql.analyse.join_keys import with_own_key
from penstock.sql.analyse.plans import (
    Expression,
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
from penstock.sql.catalog import DataFormat
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import query_nodes as q
from penstock.sql.parse.format_expressions import format_expression

__all__ = ["Composite", "Pair"]

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
    join: q.JoinClause
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
        """Names for the columns of the key, the same on both sides, as they stand in its bytes."""
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
