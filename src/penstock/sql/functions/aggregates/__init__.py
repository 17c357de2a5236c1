"""Aggregate functions: their states are plain JSON; steps add, undo and merge."""

from penstock.sql.functions.aggregates.builtin import aggregate_functions
from penstock.sql.functions.aggregates.definition import (
    AggregateFunction,
    AggregateRegistry,
    AggregateSteps,
    BoundAggregate,
)

__all__ = ["AggregateFunction", "AggregateRegistry", "AggregateSteps", "BoundAggregate", "aggregate_functions"]
