"""Parts of parsed expressions: the calls in them that are aggregates, and subtrees that something else stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from penstock.sql.functions.aggregates import aggregate_functions
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse.expression_nodes import Node, children

__all__ = ["aggregates_in", "calls_in", "columns_in", "nodes_in", "substitute"]

Parsed = TypeVar("Parsed", bound=Node)


def nodes_in(expression: Node) -> Iterator[Node]:
    """Yield all nodes of a tree, each before those below it, from left to right."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(list(children(node)))


def calls_in(expression: Node, accepts: Callable[[str], bool]) -> tuple[x.CallNode, ...]:
    """Return the calls of functions of certain names, in the order of the text; each once, however often it is written.

    >>> from penstock.sql.parse import parse_expression
    >>> [call.name for call in calls_in(parse_expression("f(g(1)) + g(1)"), lambda name: name == "G")]
    ['G']
    """
    calls = {node: None for node in nodes_in(expression) if isinstance(node, x.CallNode) and accepts(node.name)}
    return tuple(calls)


def aggregates_in(
    expression: Node, is_aggregate: Callable[[str], bool] = lambda name: aggregate_functions().get(name) is not None
) -> tuple[x.CallNode, ...]:
    """Return the calls of aggregate functions in an expression, in the order of the text, each once.

    >>> from penstock.sql.parse import format_expression, parse_expression
    >>> [format_expression(call) for call in aggregates_in(parse_expression("SUM(a) / COUNT(*) + SUM(a)"))]
    ['SUM(A)', 'COUNT(*)']
    """
    return calls_in(expression, is_aggregate)


def columns_in(expression: Node) -> tuple[x.ColumnNode, ...]:
    """Return the columns that an expression names, each once, in the order of the text, without lambdas' parameters."""
    columns: dict[x.ColumnNode, None] = {}
    waiting: list[tuple[Node, frozenset[str]]] = [(expression, frozenset())]
    while waiting:
        node, bound = waiting.pop()
        if isinstance(node, x.ColumnNode) and (node.source or node.name not in bound):
            columns[node] = None
        if isinstance(node, x.LambdaNode):
            bound |= set(node.parameters)
        waiting += [(child, bound) for child in reversed(list(children(node)))]
    return tuple(columns)


def substitute(expression: Parsed, by: Mapping[Any, Node]) -> Parsed:
    """Return the expression with other nodes in place of certain subtrees, which are found by what they say.

    A replacement is not searched again, and takes the place (`at`) of the subtree.

    >>> from penstock.sql.parse import format_expression, parse_expression
    >>> total = parse_expression("SUM(a)")
    >>> format_expression(substitute(parse_expression("1 + SUM(a)"), {total: parse_expression("agg_0")}))
    '1 + AGG_0'
    """
    tree: Parsed = _substituted(expression, by)
    return tree


def _substituted(node: Any, by: Mapping[Any, Node]) -> Any:
    if isinstance(node, tuple):
        items = tuple(_substituted(item, by) for item in node)
        return items if any(new is not old for new, old in zip(items, node, strict=True)) else node
    if not isinstance(node, Node):
        return node
    if (replacement := by.get(node)) is not None:
        return replace(replacement, at=node.at)
    old = {part.name: getattr(node, part.name) for part in fields(node) if part.name != "at"}
    new = {name: _substituted(value, by) for name, value in old.items()}
    return replace(node, **new) if any(new[name] is not old[name] for name in old) else node
