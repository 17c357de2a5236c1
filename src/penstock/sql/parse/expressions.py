"""The grammar of expressions, types and literals.

OR < AND < NOT < comparison, BETWEEN, IN, LIKE, IS < + - || < * / % < sign < -> [] < names, literals, calls, (...)

A comparison has no neighbour of its own rank: ``a = b = c`` is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeVar, cast

from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse.expression_nodes import (
    ArrayTypeNode,
    FieldType,
    MapTypeNode,
    NamedType,
    StructTypeNode,
    TypeNode,
)
from penstock.sql.parse.tokens import Cursor, SqlToken, TextPosition, TokenKind, excerpt

__all__ = [
    "NOT",
    "POSTFIX",
    "POWERS",
    "PREDICATE",
    "SIGN",
    "SUM",
    "LiteralNode",
    "Number",
    "expression",
    "expressions",
    "literal",
    "type_node",
    "value_expression",
]

Number = x.IntegerLiteral | x.DecimalLiteral | x.DoubleLiteral
LiteralNode = Number | x.StringLiteral | x.BooleanLiteral | x.NullLiteral
MAX_BIGINT = 2**63 - 1
_NUMBERS = frozenset({TokenKind.INTEGER.value, TokenKind.DECIMAL.value, TokenKind.DOUBLE.value})


def literal(cursor: Cursor) -> LiteralNode:
    """Read a literal: a string, a number with or without sign, TRUE, FALSE or NULL."""
    token = cursor.token
    if cursor.accept("TRUE") or cursor.accept("FALSE"):
        return x.BooleanLiteral(token.key == "TRUE", at=token.at)
    if cursor.accept("NULL"):
        return x.NullLiteral(at=token.at)
    constant = negative_number(cursor) if token.key == "-" else literal_or_none(cursor)
    if constant is None:
        cursor.note(TokenKind.STRING.value)
        cursor.note("a number")
        raise cursor.unexpected()
    return constant


def literal_or_none(cursor: Cursor) -> Number | x.StringLiteral | None:
    """Read a string or a number, if one stands here."""
    token = cursor.token
    if token.kind is TokenKind.STRING:
        cursor.advance()
        return x.StringLiteral(token.value, at=token.at)
    if token.key in _NUMBERS:
        cursor.advance()
        return _number(cursor, token, "", token.at)
    return None


def negative_number(cursor: Cursor, *, taken: bool = False) -> Number | None:
    """Read a number with a minus, if one stands here and the number does not begin a longer operand (``taken``)."""
    if taken or cursor.following() not in _NUMBERS:
        return None
    at = cursor.expect("-").at
    return _number(cursor, cursor.advance(), "-", at)


def _number(cursor: Cursor, token: SqlToken, sign: str, at: TextPosition) -> Number:
    text = sign + token.value
    if token.kind is TokenKind.DECIMAL:
        return x.DecimalLiteral(text, at=at)
    if token.kind is TokenKind.DOUBLE:
        if math.isinf(float(text)):
            raise cursor.refused(at, f"Number overflows DOUBLE: {text[:40]}")
        return x.DoubleLiteral(text, at=at)
    digits = token.value.lstrip("0")
    if len(digits) > 19 or not -MAX_BIGINT - 1 <= (value := int(text)) <= MAX_BIGINT:
        shown = text if len(text) <= 40 else f"{text[:37]}..."
        raise cursor.refused(
            at, f"Invalid numeric literal: {shown}", "A BIGINT has 64 bits; write a DECIMAL with a point."
        )
    return x.IntegerLiteral(value, at=at)


def type_node(cursor: Cursor) -> TypeNode:
    """Read a type."""
    cursor.enter()
    at = cursor.token.at
    node: TypeNode
    opened = cursor.following() in ("<", "<>")
    if opened and cursor.accept("ARRAY"):
        cursor.expect("<")
        node = ArrayTypeNode(type_node(cursor), at=at)
        cursor.expect(">")
    elif opened and cursor.accept("MAP"):
        cursor.expect("<")
        key = type_node(cursor)
        cursor.expect(",")
        node = MapTypeNode(key, type_node(cursor), at=at)
        cursor.expect(">")
    elif opened and cursor.accept("STRUCT"):
        node = StructTypeNode(_fields(cursor), at=at)
    else:
        node = NamedType(cursor.name("a type"), _type_parameters(cursor), at=at)
    cursor.leave()
    return node


def _fields(cursor: Cursor) -> tuple[FieldType, ...]:
    if cursor.accept("<>"):
        return ()
    cursor.expect("<")
    if cursor.accept(">"):
        return ()
    fields = [_struct_field(cursor)]
    while cursor.accept(","):
        fields.append(_struct_field(cursor))
    cursor.expect(">")
    return tuple(fields)


def _struct_field(cursor: Cursor) -> FieldType:
    at = cursor.token.at
    return FieldType(cursor.name(), type_node(cursor), at=at)


def _type_parameters(cursor: Cursor) -> tuple[int | str, ...]:
    if not cursor.accept("("):
        return ()
    parameters = [_parameter(cursor)]
    while cursor.accept(","):
        parameters.append(_parameter(cursor))
    cursor.expect(")")
    return tuple(parameters)


def _parameter(cursor: Cursor) -> int | str:
    return "STRING" if cursor.accept("STRING") else cursor.whole_number()


T = TypeVar("T")
OR, AND, NOT, PREDICATE, SUM, PRODUCT, SIGN, POSTFIX = range(1, 9)
COMPARISONS = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})
POWERS: dict[str, int] = {
    "OR": OR,
    "AND": AND,
    **dict.fromkeys((*COMPARISONS, "BETWEEN", "IN", "LIKE", "IS", "NOT"), PREDICATE),
    **dict.fromkeys(("+", "-", "||"), SUM),
    **dict.fromkeys(("*", "/", "%"), PRODUCT),
    **dict.fromkeys(("->", "["), POSTFIX),
}


def expression(cursor: Cursor, floor: int = 0) -> x.Expression:
    """Read an expression, as far as its operators bind more than ``floor``."""
    cursor.enter()
    ceiling = NOT if cursor.token.key == "NOT" else POSTFIX  # the highest power that may still follow
    left = _prefix(cursor, floor)
    while floor < (power := POWERS.get(cursor.token.key, 0)) <= ceiling:
        if power == POSTFIX:
            if cursor.following() == "*":
                break  # all fields of a struct, which only the list of a SELECT has
            left = _postfix(cursor, left)
        elif power >= SUM:
            operator = cast("x.ArithmeticOperator", cursor.advance().key)
            left = x.ArithmeticNode(operator, left, expression(cursor, power), at=left.at)
            ceiling = power
        elif power == PREDICATE:
            left = _predicate(cursor, left)
            ceiling = NOT
        else:
            left = _logical(cursor, left, power)
            ceiling = power
    cursor.leave()
    return left


def value_expression(cursor: Cursor) -> x.Expression:
    """Read an expression without comparisons at its top, which is all that GROUP BY and PARTITION BY take."""
    return expression(cursor, PREDICATE)


def expressions(cursor: Cursor) -> tuple[x.Expression, ...]:
    """Read one or more expressions with commas between them."""
    return _separated(cursor, expression)


def _separated(cursor: Cursor, rule: Callable[[Cursor], T]) -> tuple[T, ...]:
    parts = [rule(cursor)]
    while cursor.accept(","):
        parts.append(rule(cursor))
    return tuple(parts)


def _logical(cursor: Cursor, left: x.Expression, power: int) -> x.LogicalNode:
    operator: Literal["AND", "OR"] = "AND" if power == AND else "OR"
    operands = [left]
    while cursor.accept(operator):
        operands.append(expression(cursor, power))
    return x.LogicalNode(operator, tuple(operands), at=left.at)


def _postfix(cursor: Cursor, base: x.Expression) -> x.Expression:
    if cursor.accept("->"):
        return x.FieldAccess(base, cursor.name(), at=base.at)
    cursor.expect("[")
    index = expression(cursor)
    cursor.expect("]")
    return x.Subscript(base, index, at=base.at)


def _predicate(cursor: Cursor, left: x.Expression) -> x.Expression:
    key = cursor.token.key
    if key in COMPARISONS:
        cursor.advance()
        operator = cast("x.ComparisonOperator", "<>" if key == "!=" else key)
        return x.ComparisonNode(operator, left, expression(cursor, PREDICATE), at=left.at)
    if cursor.accept("IS"):
        return _is(cursor, left)
    negated = cursor.accept("NOT")
    if cursor.accept("BETWEEN"):
        low = expression(cursor, PREDICATE)
        cursor.expect("AND")
        return x.BetweenNode(left, low, expression(cursor, PREDICATE), negated, at=left.at)
    if cursor.accept("LIKE"):
        pattern = expression(cursor, PREDICATE)
        return x.LikeNode(left, pattern, _escape(cursor) if cursor.accept("ESCAPE") else None, negated, at=left.at)
    cursor.expect("IN")
    cursor.expect("(")
    if cursor.token.key == "SELECT":
        raise cursor.refused(cursor.token.at, "a subquery is allowed only in FROM", "Join with the subquery instead.")
    items = expressions(cursor)
    cursor.expect(")")
    return x.InNode(left, items, negated, at=left.at)


def _is(cursor: Cursor, left: x.Expression) -> x.Expression:
    negated = cursor.accept("NOT")
    if cursor.accept("NULL"):
        return x.IsNullNode(left, negated, at=left.at)
    cursor.expect("DISTINCT")
    cursor.expect("FROM")
    operator: x.ComparisonOperator = "IS NOT DISTINCT FROM" if negated else "IS DISTINCT FROM"
    return x.ComparisonNode(operator, left, expression(cursor, PREDICATE), at=left.at)


def _escape(cursor: Cursor) -> str:
    at = cursor.token.at
    escape = cursor.string()
    if len(escape) != 1:
        raise cursor.refused(at, f"ESCAPE takes one character, not {len(escape)}")
    return escape


def _prefix(cursor: Cursor, floor: int) -> x.Expression:
    token = cursor.token
    if token.kind is TokenKind.WORD or token.kind is TokenKind.QUOTED:
        return _word(cursor, token, floor)
    if (literal := literal_or_none(cursor)) is not None:
        return literal
    if cursor.token.key == "(":
        return _brackets(cursor)
    if token.key == "-" and (number := negative_number(cursor, taken=cursor.following(2) in ("[", "->"))) is not None:
        return number
    if token.key in ("-", "+"):
        cursor.advance()
        sign: Literal["-", "+"] = "-" if token.key == "-" else "+"
        return x.Unary(sign, expression(cursor, SIGN), at=token.at)
    cursor.note("an expression")
    raise cursor.unexpected()


def _brackets(cursor: Cursor) -> x.Expression:
    cursor.expect("(")
    if cursor.token.key == "SELECT":
        raise cursor.refused(cursor.token.at, "a subquery is allowed only in FROM", "Join with the subquery instead.")
    inner = expression(cursor)
    cursor.expect(")")
    return inner


def _word(cursor: Cursor, token: SqlToken, floor: int) -> x.Expression:
    rule = _WORDS.get(token.key)
    if rule is not None:
        return rule(cursor)
    if token.key == "NOT" and floor < PREDICATE:
        cursor.advance()
        return x.NotNode(expression(cursor, NOT), at=token.at)
    follower = cursor.following()
    if token.key == "ARRAY" and follower == "[":
        return _array(cursor)
    if token.key == "MAP" and follower == "(":
        return _map(cursor)
    if token.key == "STRUCT" and follower == "(":
        return _struct(cursor)
    name = cursor.name("an expression")
    if follower == "(":
        return _call(cursor, name, token)
    if follower == "." and cursor.accept("."):
        return x.ColumnNode(cursor.name(), name, at=token.at)
    return x.ColumnNode(name, at=token.at)


def _call(cursor: Cursor, name: str, token: SqlToken) -> x.CallNode:
    cursor.expect("(")
    if cursor.accept(")"):
        return x.CallNode(name, at=token.at)
    arguments = _separated(cursor, _argument)
    cursor.expect(")")
    return x.CallNode(name, arguments, at=token.at)


def _argument(cursor: Cursor) -> x.Expression | x.LambdaNode | x.Star:
    at = cursor.token.at
    if cursor.token.key == "*" and cursor.accept("*"):
        return x.Star(at=at)
    if (parameters := _parameters(cursor)) is None:
        return expression(cursor)
    cursor.expect("=>")
    cursor.enter()
    body = expression(cursor)
    cursor.leave()
    return x.LambdaNode(parameters, body, at=at)


def _parameters(cursor: Cursor) -> tuple[str, ...] | None:
    """Return the parameters of a lambda, if one begins here: ``x =>``, ``(x) =>``, ``(x, y) =>``."""
    if cursor.following() == "=>":
        return (cursor.name(),)
    if cursor.token.key != "(":
        return None
    ahead = 2
    while cursor.following(ahead) == ",":
        ahead += 2
    if cursor.following(ahead) != ")" or cursor.following(ahead + 1) != "=>":
        return None
    cursor.expect("(")
    parameters = _separated(cursor, Cursor.name)
    cursor.expect(")")
    return parameters


def _case(cursor: Cursor) -> x.Expression:
    at = cursor.expect("CASE").at
    if not cursor.at("WHEN") and cursor.token.key != "END":
        token = cursor.token
        shown = excerpt(cursor.source(token))
        raise cursor.refused(token.at, f"expected WHEN, found {shown}", _searched(cursor))
    branches = [_when(cursor)]
    while cursor.at("WHEN"):
        branches.append(_when(cursor))
    otherwise = expression(cursor) if cursor.accept("ELSE") else None
    cursor.expect("END")
    return x.CaseNode(tuple(branches), otherwise, at=at)


def _searched(cursor: Cursor) -> str:
    """Say how ``CASE x WHEN 1 THEN ...`` is written, with the words of the statement as far as they are plain."""
    start = cursor.index
    operand, value = "x", "1"
    ends = [index for index in range(start, len(cursor.tokens)) if cursor.tokens[index].key in {"WHEN", "THEN", "END"}]
    if len(ends) > 1 and [cursor.tokens[index].key for index in ends[:2]] == ["WHEN", "THEN"]:
        when, then = ends[:2]
        operand = cursor.text[cursor.token.at.offset : cursor.tokens[when - 1].end]
        value = cursor.text[cursor.tokens[when + 1].at.offset : cursor.tokens[then - 1].end]
    condition = f"{operand} = {value}" if len(operand) + len(value) <= 80 else "x = 1"
    return f"Each WHEN takes a condition: CASE WHEN {condition} THEN ... ELSE ... END."


def _when(cursor: Cursor) -> x.When:
    at = cursor.expect("WHEN").at
    condition = expression(cursor)
    cursor.expect("THEN")
    return x.When(condition, expression(cursor), at=at)


def _cast(cursor: Cursor) -> x.Expression:
    at = cursor.expect("CAST").at
    cursor.expect("(")
    operand = expression(cursor)
    cursor.expect("AS")
    type_ = type_node(cursor)
    cursor.expect(")")
    return x.CastNode(operand, type_, at=at)


def _array(cursor: Cursor) -> x.Expression:
    at = cursor.expect("ARRAY").at
    cursor.expect("[")
    if cursor.accept("]"):
        return x.ArrayLiteral((), at=at)
    items = expressions(cursor)
    cursor.expect("]")
    return x.ArrayLiteral(items, at=at)


def _map(cursor: Cursor) -> x.Expression:
    at = cursor.expect("MAP").at
    cursor.expect("(")
    if cursor.accept(")"):
        return x.MapLiteral((), at=at)
    entries = _separated(cursor, _entry)
    cursor.expect(")")
    return x.MapLiteral(entries, at=at)


def _entry(cursor: Cursor) -> x.EntryNode:
    key = expression(cursor)
    cursor.expect(":=")
    return x.EntryNode(key, expression(cursor), at=key.at)


def _struct(cursor: Cursor) -> x.Expression:
    at = cursor.expect("STRUCT").at
    cursor.expect("(")
    if cursor.accept(")"):
        return x.StructLiteral((), at=at)
    fields = _separated(cursor, _field)
    cursor.expect(")")
    return x.StructLiteral(fields, at=at)


def _field(cursor: Cursor) -> x.FieldValue:
    at = cursor.token.at
    name = cursor.name()
    cursor.expect(":=")
    return x.FieldValue(name, expression(cursor), at=at)


def _constant(cursor: Cursor) -> x.Expression:
    token = cursor.advance()
    return x.NullLiteral(at=token.at) if token.key == "NULL" else x.BooleanLiteral(token.key == "TRUE", at=token.at)


_WORDS: dict[str, Callable[[Cursor], x.Expression]] = {
    "NULL": _constant,
    "TRUE": _constant,
    "FALSE": _constant,
    "CASE": _case,
    "CAST": _cast,
}
