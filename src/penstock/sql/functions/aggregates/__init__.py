"""Aggregate functions: their states are plain JSON; steps add, undo and merge."""

from penstock.sql.functions.aggregates.builtin import aggregate_functions
from penstock.sql.functions.aggregates.definition import Aggregate, AggregateFunction, AggregateRegistry, BoundAggregate

__all__ = ["aggregate_functions", "Aggregate", "AggregateFunction", "AggregateRegistry", "BoundAggregate"]
