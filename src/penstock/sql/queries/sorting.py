"""ORDER BY of a query over a stream: by columns of its result, or by others, which its rows then have at their end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.errors import SqlError
from penstock.sql.analyse.expressions import Library, typed_expression
from penstock.sql.analyse.fields import ClauseScope, Field, qualified
from penstock.sql.analyse.statement_errors import refusal
from penstock.sql.analyse.transient import TransientAnalysed, TransientAnalysis
from penstock.sql.catalog import Catalog
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import query_nodes as q
from penstock.sql.parse.format_expressions import format_expression
from penstock.sql.queries.plans import Order
from penstock.sql.types import ArrayType, MapType, StructType

__all__ = ["order_of", "sorted_result"]

HIDDEN = "KSQL_ORDER_{}"


def sorted_result(
    query: q.Query, catalog: Catalog, library: Library
) -> tuple[TransientAnalysed, tuple[Order, ...], int]:
    """Analyse a query over a stream.

    Args:
        query: The query.
        catalog: Sources and settings.
        library: The functions.

    Returns:
        The query, the expressions that its rows are sorted by, and the number of its columns: rows have further values
        behind them where they are sorted by what SELECT does not have.

    Raises:
        SqlError: It cannot be run.
    """
    bare = replace(query, order_by=(), limit=None, offset=None)
    found = TransientAnalysis(bare, "the result", catalog, library).result()
    width = len(found.columns)
    own = ClauseScope(found.step.fields, "ORDER BY")
    nodes: list[Any] = []
    hidden: list[q.Selected] = []
    for each in query.order_by:
        node = _by_number(each.expression, found.step.fields)
        problem = _problem(node, own, library)
        if problem is not None:
            hidden.append(q.Selected(node, HIDDEN.format(len(hidden)), at=node.at))
            node = x.Column(str(hidden[-1].alias), at=node.at)
            wider = replace(bare, items=(*bare.items, *hidden))
            try:
                found = TransientAnalysis(wider, "the result", catalog, library).result()
            except SqlError:
                raise problem from None
        nodes.append(node)
    names = ClauseScope(found.step.fields, "ORDER BY")
    order = [
        order_of(replace(each, expression=node), names, library)
        for each, node in zip(query.order_by, nodes, strict=True)
    ]
    return found, tuple(order), width


def order_of(ordering: q.Ordering, names: ClauseScope, library: Library) -> Order:
    """The sort key of an expression.

    Raises:
        SqlError: It names no column, or its values have no order.
    """
    node = ordering.expression
    found = typed_expression(qualified(node, names), names, library)
    if isinstance(found.type, ArrayType | MapType | StructType):
        raise refusal(node.at, f"ORDER BY {format_expression(node)}: values of {found.type} have no order")
    return Order(found, ordering.descending, ordering.nulls == "FIRST")


def _by_number(node: Any, fields: tuple[Field, ...]) -> Any:
    """A number stands for a column of SELECT."""
    if not isinstance(node, x.IntegerLiteral):
        return node
    if not 1 <= node.value <= len(fields):
        raise refusal(node.at, f"ORDER BY {node.value}: SELECT has {len(fields)} columns")
    return x.Column(fields[node.value - 1].name, at=node.at)


def _problem(node: Any, names: ClauseScope, library: Library) -> SqlError | None:
    """What is wrong with an expression over the columns of the result."""
    try:
        typed_expression(qualified(node, names), names, library)
    except SqlError as error:
        return error
    return None
