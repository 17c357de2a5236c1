"""Expressions as they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.sql.parse.nodes import Node
from penstock.sql.parse.type_nodes import TypeNode

__all__ = [
    "ArithmeticOperator",
    "ComparisonOperator",
    "Expression",
    "Arithmetic",
    "ArrayLiteral",
    "Between",
    "BooleanLiteral",
    "Call",
    "Case",
    "Cast",
    "Column",
    "Comparison",
    "DecimalLiteral",
    "DoubleLiteral",
    "Entry",
    "FieldAccess",
    "FieldValue",
    "In",
    "IntegerLiteral",
    "IsNull",
    "Lambda",
    "Like",
    "Logical",
    "MapLiteral",
    "Not",
    "NullLiteral",
    "Star",
    "StringLiteral",
    "StructLiteral",
    "Subscript",
    "Unary",
    "When",
]

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
class Column(Node):
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
class Lambda(Node):
    """An argument that is a function: ``x => x + 1``, ``(k, v) => v``."""

    parameters: tuple[str, ...]
    body: Expression


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A call of a function; which kind of function is not known here."""

    name: str
    arguments: tuple[Expression | Lambda | Star, ...] = ()


@dataclass(frozen=True, slots=True)
class ArrayLiteral(Node):
    """``ARRAY[item, ...]``."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Entry(Node):
    """An entry of ``MAP(...)``."""

    key: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class MapLiteral(Node):
    """``MAP(key := value, ...)``."""

    entries: tuple[Entry, ...]


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
class Cast(Node):
    """``CAST(operand AS type)``."""

    operand: Expression
    type: TypeNode


@dataclass(frozen=True, slots=True)
class When(Node):
    """A branch of ``CASE``."""

    condition: Expression
    result: Expression


@dataclass(frozen=True, slots=True)
class Case(Node):
    """``CASE WHEN condition THEN result ... ELSE otherwise END``."""

    branches: tuple[When, ...]
    otherwise: Expression | None = None


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """A sign before an expression that is not a number."""

    operator: Literal["-", "+"]
    operand: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic(Node):
    """``left + right`` and the like; ``||`` concatenates."""

    operator: ArithmeticOperator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Comparison(Node):
    """``left = right`` and the like; ``!=`` is kept as ``<>``."""

    operator: ComparisonOperator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Between(Node):
    """``operand [NOT] BETWEEN low AND high``."""

    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class In(Node):
    """``operand [NOT] IN (item, ...)``."""

    operand: Expression
    items: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like(Node):
    """``operand [NOT] LIKE pattern [ESCAPE 'character']``."""

    operand: Expression
    pattern: Expression
    escape: str | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull(Node):
    """``operand IS [NOT] NULL``."""

    operand: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Not(Node):
    """``NOT operand``."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Logical(Node):
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
    | Column
    | Subscript
    | FieldAccess
    | Call
    | ArrayLiteral
    | MapLiteral
    | StructLiteral
    | Cast
    | Case
    | Unary
    | Arithmetic
    | Comparison
    | Between
    | In
    | Like
    | IsNull
    | Not
    | Logical
)
