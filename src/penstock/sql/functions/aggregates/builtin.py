"""All aggregate functions."""

from __future__ import annotations

from penstock.sql.functions.aggregates.definition import AggregateRegistry
from penstock.sql.functions.aggregates.distinct import COUNT_DISTINCT
from penstock.sql.functions.aggregates.numbers import NUMBER_AGGREGATES
from penstock.sql.functions.aggregates.offsets import OFFSET_AGGREGATES
from penstock.sql.functions.aggregates.values import VALUE_AGGREGATES, collections

__all__ = ["aggregate_functions"]


def aggregate_functions(list_limit: int | None = None, set_limit: int | None = None) -> AggregateRegistry:
    """Return the registry of aggregate functions, with the limits of COLLECT_LIST and COLLECT_SET.

    >>> from penstock.sql.types import INTEGER
    >>> aggregate_functions().resolve("topk", [INTEGER, INTEGER], [2]).fold([(1,), (5,), (3,)])
    [5, 3]
    """
    collected = collections(list_limit, set_limit)
    return AggregateRegistry((*NUMBER_AGGREGATES, *VALUE_AGGREGATES, *OFFSET_AGGREGATES, COUNT_DISTINCT, *collected))
