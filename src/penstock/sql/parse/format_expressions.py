"""Expressions and types as canonical text, with as few brackets as the grammar needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse.expressions import NOT, POSTFIX, POWERS, PREDICATE, SIGN, SUM
from penstock.sql.parse.tokens import quoted
from penstock.sql.parse.type_nodes import ArrayTypeNode, MapTypeNode, StructTypeNode, TypeNode

__all__ = ["format_expression", "format_type", "quoted_string"]

PRIMARY = POSTFIX + 1


def format_expression(node: x.Expression | x.LambdaNode | x.Star, floor: int = 0) -> str:
    """Return an expression, in brackets if it binds less than ``floor``.

    >>> from penstock.sql.parse import parse_expression
    >>> format_expression(parse_expression("((a+b))*c != 1 and not (d is null)"))
    '(A + B) * C <> 1 AND NOT D IS NULL'
    """
    text = _RULES[type(node)](node)
    return f"({text})" if floor and _power(node) < floor else text


def format_type(node: TypeNode) -> str:
    """Return a type."""
    if isinstance(node, ArrayTypeNode):
        return f"ARRAY<{format_type(node.item)}>"
    if isinstance(node, MapTypeNode):
        return f"MAP<{format_type(node.key)}, {format_type(node.value)}>"
    if isinstance(node, StructTypeNode):
        return f"STRUCT<{', '.join(f'{quoted(f.name)} {format_type(f.type)}' for f in node.fields)}>"
    parameters = f"({', '.join(map(str, node.parameters))})" if node.parameters else ""
    return quoted(node.name) + parameters


def quoted_string(text: str) -> str:
    """Return a string as it is written in a statement.

    >>> quoted_string("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def _power(node: x.Expression | x.LambdaNode | x.Star) -> int:
    if isinstance(node, x.ArithmeticNode):
        return POWERS[node.operator]
    if isinstance(node, x.LogicalNode):
        return POWERS[node.operator]
    if isinstance(node, x.IntegerLiteral):
        return SIGN if node.value < 0 else PRIMARY
    if isinstance(node, x.DecimalLiteral | x.DoubleLiteral):
        return SIGN if node.text.startswith("-") else PRIMARY
    return _POWERS.get(type(node), PRIMARY)


def _null(_: x.NullLiteral) -> str:
    return "NULL"


def _boolean(node: x.BooleanLiteral) -> str:
    return "TRUE" if node.value else "FALSE"


def _integer(node: x.IntegerLiteral) -> str:
    return str(node.value)


def _number(node: x.DecimalLiteral | x.DoubleLiteral) -> str:
    return node.text


def _string(node: x.StringLiteral) -> str:
    return quoted_string(node.value)


def _column(node: x.ColumnNode) -> str:
    return f"{quoted(node.source)}.{quoted(node.name)}" if node.source is not None else quoted(node.name)


def _subscript(node: x.Subscript) -> str:
    return f"{format_expression(node.base, POSTFIX)}[{format_expression(node.index)}]"


def _field_access(node: x.FieldAccess) -> str:
    return f"{format_expression(node.base, POSTFIX)}->{quoted(node.name)}"


def _star(_: x.Star) -> str:
    return "*"


def _lambda(node: x.LambdaNode) -> str:
    names = ", ".join(map(quoted, node.parameters))
    return f"{names if len(node.parameters) == 1 else f'({names})'} => {format_expression(node.body)}"


def _call(node: x.CallNode) -> str:
    return f"{quoted(node.name)}({', '.join(map(format_expression, node.arguments))})"


def _array(node: x.ArrayLiteral) -> str:
    return f"ARRAY[{', '.join(map(format_expression, node.items))}]"


def _map(node: x.MapLiteral) -> str:
    return f"MAP({', '.join(f'{format_expression(e.key)} := {format_expression(e.value)}' for e in node.entries)})"


def _struct(node: x.StructLiteral) -> str:
    return f"STRUCT({', '.join(f'{quoted(f.name)} := {format_expression(f.value)}' for f in node.fields)})"


def _cast(node: x.CastNode) -> str:
    return f"CAST({format_expression(node.operand)} AS {format_type(node.type)})"


def _case(node: x.CaseNode) -> str:
    parts = [f"WHEN {format_expression(b.condition)} THEN {format_expression(b.result)}" for b in node.branches]
    if node.otherwise is not None:
        parts.append(f"ELSE {format_expression(node.otherwise)}")
    return f"CASE {' '.join(parts)} END"


def _unary(node: x.Unary) -> str:
    # Two signs could read as a comment, and a sign before a number belongs to the number.
    signed = isinstance(node.operand, x.Unary | x.IntegerLiteral | x.DecimalLiteral | x.DoubleLiteral)
    return node.operator + format_expression(node.operand, PRIMARY + 1 if signed else SIGN)


def _arithmetic(node: x.ArithmeticNode) -> str:
    power = POWERS[node.operator]
    return f"{format_expression(node.left, power)} {node.operator} {format_expression(node.right, power + 1)}"


def _comparison(node: x.ComparisonNode) -> str:
    return f"{_operand(node.left)} {node.operator} {_operand(node.right)}"


def _between(node: x.BetweenNode) -> str:
    return f"{_operand(node.operand)} {_not(node.negated)}BETWEEN {_operand(node.low)} AND {_operand(node.high)}"


def _in(node: x.InNode) -> str:
    return f"{_operand(node.operand)} {_not(node.negated)}IN ({', '.join(map(format_expression, node.items))})"


def _like(node: x.LikeNode) -> str:
    escape = f" ESCAPE {quoted_string(node.escape)}" if node.escape is not None else ""
    return f"{_operand(node.operand)} {_not(node.negated)}LIKE {_operand(node.pattern)}{escape}"


def _is_null(node: x.IsNullNode) -> str:
    return f"{_operand(node.operand)} IS {_not(node.negated)}NULL"


def _operand(node: x.Expression) -> str:
    return format_expression(node, SUM)


def _not(negated: object) -> str:
    return "NOT " if negated else ""


def _negation(node: x.NotNode) -> str:
    return f"NOT {format_expression(node.operand, NOT)}"


def _logical(node: x.LogicalNode) -> str:
    power = POWERS[node.operator]
    return f" {node.operator} ".join(format_expression(operand, power + 1) for operand in node.operands)


_POWERS: dict[type, int] = {
    x.Unary: SIGN,
    x.ComparisonNode: PREDICATE,
    x.BetweenNode: PREDICATE,
    x.InNode: PREDICATE,
    x.LikeNode: PREDICATE,
    x.IsNullNode: PREDICATE,
    x.NotNode: NOT,
    x.Subscript: POSTFIX,
    x.FieldAccess: POSTFIX,
}
_RULES: dict[type, Callable[[Any], str]] = {
    x.NullLiteral: _null,
    x.BooleanLiteral: _boolean,
    x.IntegerLiteral: _integer,
    x.DecimalLiteral: _number,
    x.DoubleLiteral: _number,
    x.StringLiteral: _string,
    x.ColumnNode: _column,
    x.Subscript: _subscript,
    x.FieldAccess: _field_access,
    x.Star: _star,
    x.LambdaNode: _lambda,
    x.CallNode: _call,
    x.ArrayLiteral: _array,
    x.MapLiteral: _map,
    x.StructLiteral: _struct,
    x.CastNode: _cast,
    x.CaseNode: _case,
    x.Unary: _unary,
    x.ArithmeticNode: _arithmetic,
    x.ComparisonNode: _comparison,
    x.BetweenNode: _between,
    x.InNode: _in,
    x.LikeNode: _like,
    x.IsNullNode: _is_null,
    x.NotNode: _negation,
    x.LogicalNode: _logical,
}
