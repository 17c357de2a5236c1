"""The way of a record that comes by itself through operators whose work is written for batches alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.runtime.rows import Row, Rows

if TYPE_CHECKING:
    from penstock.runtime.context import TaskContext
    from penstock.runtime.operator import Operator, RowStep

__all__ = ["step_of_batches"]


def step_of_batches(operator: Operator, context: TaskContext) -> RowStep:
    """Return the `row_step` of an operator that sends plain columns to all its children: a batch of one row."""

    def step(row: Row) -> Iterable[Row]:
        with context.batch_of(rows := row.rows(context.step)):
            result = operator.process(rows, "")
        if isinstance(result, Rows):
            return Row.each_of(result)
        return (each for _, rows in result for each in Row.each_of(rows))  # some work while each is passed on

    return step
