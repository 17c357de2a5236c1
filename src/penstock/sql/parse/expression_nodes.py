"""Expressions and types as they are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Literal

from penstock.sql.parse.tokens import NOWHERE, TextPosition

__all__ = [
    "ArithmeticNode",
    "ArithmeticOperator",
    "ArrayLiteral",
    "ArrayTypeNode",
    "BetweenNode",
    "BooleanLiteral",
    "CallNode",
    "CaseNode",
    "CastNode",
    "ColumnNode",
    "ComparisonNode",
    "ComparisonOperator",
    "DecimalLiteral",
    "DoubleLiteral",
    "EntryNode",
    "Expression",
    "FieldAccess",
    "FieldType",
    "FieldValue",
    "InNode",
    "IntegerLiteral",
    "IsNullNode",
    "LambdaNode",
    "LikeNode",
    "LogicalNode",
    "MapLiteral",
    "MapTypeNode",
    "NamedType",
    "Node",
    "NotNode",
    "NullLiteral",
    "Star",
    "StringLiteral",
    "StructLiteral",
    "StructTypeNode",
    "Subscript",
    "TypeNode",
    "Unary",
    "When",
    "children",
]


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a statement, as it is written.

    Nodes are equal if they say the same, wherever they stand.

    Attributes:
        at: Where it begins.
    """

    at: TextPosition = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes right below a node, those in tuples included."""
    for part in fields(node):
        waiting = [getattr(node, part.name)] if part.name != "at" else []
        while waiting:
            value = waiting.pop()
            if isinstance(value, Node):
                yield value
            elif isinstance(value, tuple):
                waiting += reversed(value)


@dataclass(frozen=True, slots=True)
class NamedType(Node):
    """A type by its name: ``INT``, ``DECIMAL(4, 2)``, ``VARCHAR(STRING)``, a custom type.

    Attributes:
        name: The name; of unquoted ones in upper case.
        parameters: Whole numbers, or the word STRING.
    """

    name: str
    parameters: tuple[int | str, ...] = ()


@dataclass(frozen=True, slots=True)
class ArrayTypeNode(Node):
    """``ARRAY<item>``."""

    item: TypeNode


@dataclass(frozen=True, slots=True)
class MapTypeNode(Node):
    """``MAP<key, value>``."""

    key: TypeNode
    value: TypeNode


@dataclass(frozen=True, slots=True)
class FieldType(Node):
    """A field of a struct type."""

    name: str
    type: TypeNode


@dataclass(frozen=True, slots=True)
class StructTypeNode(Node):
    """``STRUCT<name type, ...>``."""

    fields: tuple[FieldType, ...]


TypeNode = NamedType | ArrayTypeNode | MapTypeNode | StructTypeNode


ArithmeticOperator = Literal["+", "-", "*", "/", "%", "||"]
ComparisonOperator = Literal["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]


@dataclass(frozen=True, slots=True)
class NullLiteral(Node):
    """``NULL``."""


@dataclass(frozen=True, slots=True)
class BooleanLiteral(Node):
    """``TRUE`` or ``FALSE``."""

    value: bool


@dataclass(frozen=True, slots=True)
class IntegerLiteral(Node):
    """A whole number of at most 64 bits; its type depends on its size."""

    value: int


@dataclass(frozen=True, slots=True)
class DecimalLiteral(Node):
    """A number with a point: ``1.50``. The digits are kept, as they are its precision and scale."""

    text: str


@dataclass(frozen=True, slots=True)
class DoubleLiteral(Node):
    """A number with an exponent: ``1E3``."""

    text: str


@dataclass(frozen=True, slots=True)
class StringLiteral(Node):
    """``'text'``, its escapes resolved."""

    value: str


@dataclass(frozen=True, slots=True)
class ColumnNode(Node):
    """A column, or a parameter of a lambda: ``NAME`` or ``SOURCE.NAME``."""

    name: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Subscript(Node):
    """An item of an array or a value of a map: ``base[index]``."""

    base: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class FieldAccess(Node):
    """A field of a struct: ``base->name``."""

    base: Expression
    name: str


@dataclass(frozen=True, slots=True)
class Star(Node):
    """The argument of ``COUNT(*)``."""


@dataclass(frozen=True, slots=True)
class LambdaNode(Node):
    """An argument that is a function: ``x => x + 1``, ``(k, v) => v``."""

    parameters: tuple[str, ...]
    body: Expression


@dataclass(frozen=True, slots=True)
class CallNode(Node):
    """A call of a function; which kind of function is not known here."""

    name: str
    arguments: tuple[Expression | LambdaNode | Star, ...] = ()


@dataclass(frozen=True, slots=True)
class ArrayLiteral(Node):
    """``ARRAY[item, ...]``."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class EntryNode(Node):
    """An entry of ``MAP(...)``."""

    key: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class MapLiteral(Node):
    """``MAP(key := value, ...)``."""

    entries: tuple[EntryNode, ...]


@dataclass(frozen=True, slots=True)
class FieldValue(Node):
    """A field of ``STRUCT(...)``."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class StructLiteral(Node):
    """``STRUCT(name := value, ...)``."""

    fields: tuple[FieldValue, ...]


@dataclass(frozen=True, slots=True)
class CastNode(Node):
    """``CAST(operand AS type)``."""

    operand: Expression
    type: TypeNode


@dataclass(frozen=True, slots=True)
class When(Node):
    """A branch of ``CASE``."""

    condition: Expression
    result: Expression


@dataclass(frozen=True, slots=True)
class CaseNode(Node):
    """``CASE WHEN condition THEN result ... ELSE otherwise END``."""

    branches: tuple[When, ...]
    otherwise: Expression | None = None


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """A sign before an expression that is not a number."""

    operator: Literal["-", "+"]
    operand: Expression


@dataclass(frozen=True, slots=True)
class ArithmeticNode(Node):
    """``left + right`` and the like; ``||`` concatenates."""

    operator: ArithmeticOperator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class ComparisonNode(Node):
    """``left = right`` and the like; ``!=`` is kept as ``<>``."""

    operator: ComparisonOperator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class BetweenNode(Node):
    """``operand [NOT] BETWEEN low AND high``."""

    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class InNode(Node):
    """``operand [NOT] IN (item, ...)``."""

    operand: Expression
    items: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class LikeNode(Node):
    """``operand [NOT] LIKE pattern [ESCAPE 'character']``."""

    operand: Expression
    pattern: Expression
    escape: str | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNullNode(Node):
    """``operand IS [NOT] NULL``."""

    operand: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class NotNode(Node):
    """``NOT operand``."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class LogicalNode(Node):
    """Two or more conditions, all joined by AND or all by OR."""

    operator: Literal["AND", "OR"]
    operands: tuple[Expression, ...]


Expression = (
    NullLiteral
    | BooleanLiteral
    | IntegerLiteral
    | DecimalLiteral
    | DoubleLiteral
    | StringLiteral
    | ColumnNode
    | Subscript
    | FieldAccess
    | CallNode
    | ArrayLiteral
    | MapLiteral
    | StructLiteral
    | CastNode
    | CaseNode
    | Unary
    | ArithmeticNode
    | ComparisonNode
    | BetweenNode
    | InNode
    | LikeNode
    | IsNullNode
    | NotNode
    | LogicalNode
)
