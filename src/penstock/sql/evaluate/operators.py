"""The text of operators: the common cases as Python's own operators, all others as calls."""

from __future__ import annotations

from penstock.sql.evaluate.source import Module
from penstock.sql.evaluate.typed import Arithmetic
from penstock.sql.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, INTEGER, STRING, TIME, TIMESTAMP, SqlType
from penstock.sql.types.arithmetic import arithmetic
from penstock.sql.types.comparison import comparison, distinct

__all__ = ["arithmetic_text", "compare_text"]

SIGNS = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
EQUALITY = ("=", "<>")
WHOLE = (INTEGER, BIGINT)
ORDERED = (BYTES, DATE, TIME, TIMESTAMP)
LIMITS = {INTEGER: ("-2147483648", "2147483647", "wrap_int"), BIGINT: (f"{-(2**63)}", f"{2**63 - 1}", "wrap_long")}


def compare_text(module: Module, how: tuple[str, SqlType, SqlType], left: str, right: str) -> str:
    """The text of a comparison (``how``: the operator and the types of both sides) that is false for null."""
    operator, one, two = how
    if operator.startswith("IS"):
        text = f"{module.constant(distinct(one, two))}({left}, {right})"
        return text if operator == "IS DISTINCT FROM" else f"(not {text})"
    if not _inline(operator, one, two):
        return f"{module.constant(comparison(operator, one, two))}({left}, {right})"
    tests, names = [], []
    for text, kind, other in ((left, one, two), (right, two, one)):
        test, name = _held(module, text)
        tests += [f"{test} is not None"] if test else []
        names.append(f"float({name})" if kind == BIGINT and other == DOUBLE else name)
    return f"({' and '.join([*tests, f'{names[0]} {SIGNS[operator]} {names[1]}'])})"


def _inline(operator: str, left: SqlType, right: SqlType) -> bool:
    numbers = (*WHOLE, DOUBLE)
    if left in numbers and right in numbers:
        return True
    return left == right and (left in ORDERED or (left in (STRING, BOOLEAN) and operator in EQUALITY))


def _held(module: Module, text: str) -> tuple[str, str]:
    """The text of the first use of a value, empty if it cannot be null, and of the next."""
    if text[0] in "'\"-0123456789" or text in ("True", "False"):
        return "", text
    if text.isidentifier():
        return text, text
    name = module.fresh("t")
    return f"({name} := {text})", name


def arithmetic_text(module: Module, node: Arithmetic, left: str, right: str) -> str:
    """The text of an operation. Python refuses None as an operand, which makes it an error as it has to be."""
    kind = node.type
    if kind == STRING:
        return f"({_spelled(module, left)} + {_spelled(module, right)})"
    if node.operator in ("+", "-", "*"):
        if kind in LIMITS:
            least, most, wrap = LIMITS[kind]
            name = module.fresh("t")
            text = f"({name} := {left} {node.operator} {right})"
            return f"({name} if {least} <= {text} <= {most} else {wrap}({name}))"
        if kind == DOUBLE:
            texts = [
                text if side.type in (DOUBLE, INTEGER, BIGINT) else f"float({text})"
                for text, side in ((left, node.left), (right, node.right))
            ]
            return f"({texts[0]} {node.operator} {texts[1]})"
    apply = arithmetic(node.operator, node.left.type, node.right.type).apply
    return f"{module.constant(apply)}({left}, {right})"


def _spelled(module: Module, text: str) -> str:
    """A text, of which null is the word."""
    if text[0] in "'\"":
        return text
    name = module.fresh("t")
    return f"('null' if ({name} := {text}) is None else {name})"
