"""The grammar of literals, which properties have besides expressions."""

from __future__ import annotations

import math

from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse.cursor import Cursor
from penstock.sql.parse.tokens import SqlToken, TextPosition, TokenKind

__all__ = ["Literal", "Number", "literal", "literal_or_none", "negative_number"]

Number = x.IntegerLiteral | x.DecimalLiteral | x.DoubleLiteral
Literal = Number | x.StringLiteral | x.BooleanLiteral | x.NullLiteral
MAX_BIGINT = 2**63 - 1
_NUMBERS = frozenset({TokenKind.INTEGER.value, TokenKind.DECIMAL.value, TokenKind.DOUBLE.value})


def literal(cursor: Cursor) -> Literal:
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
