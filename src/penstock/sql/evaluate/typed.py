"""Typed expressions: frozen trees in which each column has a place in the row and each function is bound.

A row is a tuple with one Python value for each column, as `penstock.sql.types` has them. `type_expression` makes these
trees of parsed expressions, `compile_rows` and `compile_predicate` make functions of rows of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from penstock.sql.functions import Bound, ScalarFunction
from penstock.sql.functions.patterns import Argument
from penstock.sql.parse.tokens import NOWHERE, TextPosition
from penstock.sql.types import SqlType

__all__ = [
    "Arithmetic",
    "Between",
    "Call",
    "Case",
    "Comparison",
    "Constant",
    "Convert",
    "Element",
    "Entry",
    "Functions",
    "In",
    "IsNull",
    "Lambda",
    "Like",
    "Logical",
    "MakeArray",
    "MakeMap",
    "MakeStruct",
    "Negative",
    "Not",
    "Parameter",
    "Scope",
    "Typed",
    "TypedCast",
    "TypedColumn",
    "TypedField",
]


@dataclass(frozen=True, slots=True)
class Typed:
    """A typed expression.

    Attributes:
        type: the type of its values.
        at: where it stands in the statement.
    """

    type: SqlType
    at: TextPosition = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class TypedColumn(Typed):
    """A column: its value stands at ``row[index]``."""

    index: int


class Scope(Protocol):
    """The columns that an expression may name."""

    def column(self, source: str | None, name: str, at: TextPosition) -> TypedColumn:
        """Return the column of a name, of a source if one is written before it.

        Raises:
            SqlError: there is none, or several sources have one.
        """
        ...


class Functions(Protocol):
    """The scalar functions; a `penstock.sql.functions.FunctionRegistry` is one."""

    def get(self, name: str) -> ScalarFunction | None:
        """Return a function by its name in any case; ``None`` if there is none."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all functions, aliases too."""
        ...

    def resolve(self, name: str, arguments: Sequence[Argument]) -> Bound:
        """Bind a function to the types of its arguments.

        Raises:
            SqlTypeError: there is no such function, or none that takes them.
        """
        ...


@dataclass(frozen=True, slots=True)
class Constant(Typed):
    """A literal, or what is computed once for all rows."""

    value: Any


@dataclass(frozen=True, slots=True)
class Parameter(Typed):
    """A parameter of a lambda; its number is its own within the expression."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Lambda(Typed):
    """A function as an argument; its type is that of its result."""

    parameters: tuple[Parameter, ...]
    body: Typed


@dataclass(frozen=True, slots=True)
class Call(Typed):
    """A call of a scalar function."""

    name: str
    arguments: tuple[Typed, ...]
    function: Bound = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TypedField(Typed):
    """A field of a struct; of a null struct it is null."""

    base: Typed
    name: str


@dataclass(frozen=True, slots=True)
class Element(Typed):
    """An element of an array, counted from one or, negative, from the end; or the value of a key of a map."""

    base: Typed
    index: Typed


@dataclass(frozen=True, slots=True)
class MakeArray(Typed):
    """``ARRAY[...]``."""

    items: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A key and a value of a map that is made."""

    key: Typed
    value: Typed


@dataclass(frozen=True, slots=True)
class MakeMap(Typed):
    """``MAP(...)``; a null key is the text ``null``."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class MakeStruct(Typed):
    """``STRUCT(...)``: one value for each field of the type."""

    values: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class TypedCast(Typed):
    """``CAST``: its operand is evaluated on its own, hence an error in it makes it null."""

    operand: Typed


@dataclass(frozen=True, slots=True)
class Convert(Typed):
    """A conversion that is not written: to a wider type, or of a text that is compared with a time."""

    operand: Typed


@dataclass(frozen=True, slots=True)
class Negative(Typed):
    """A minus sign."""

    operand: Typed


@dataclass(frozen=True, slots=True)
class Arithmetic(Typed):
    """``+ - * / %``; a null operand is an error, except in the ``+`` of texts."""

    operator: str
    left: Typed
    right: Typed


@dataclass(frozen=True, slots=True)
class Comparison(Typed):
    """``= <> < <= > >=``, of which each is false for null, ``IS DISTINCT FROM``, ``IS NOT DISTINCT FROM``."""

    operator: str
    left: Typed
    right: Typed


@dataclass(frozen=True, slots=True)
class Between(Typed):
    """``BETWEEN``; false for null."""

    operand: Typed
    low: Typed
    high: Typed


@dataclass(frozen=True, slots=True)
class In(Typed):
    """``IN``; false for null. The items have the type of the operand."""

    operand: Typed
    items: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class Like(Typed):
    """``LIKE``; null is an error."""

    operand: Typed
    pattern: Typed
    escape: str | None


@dataclass(frozen=True, slots=True)
class IsNull(Typed):
    """``IS NULL``."""

    operand: Typed


@dataclass(frozen=True, slots=True)
class Not(Typed):
    """``NOT``."""

    operand: Typed


@dataclass(frozen=True, slots=True)
class Logical(Typed):
    """``AND`` or ``OR`` of two or more; those behind the one that decides are not evaluated."""

    operator: Literal["AND", "OR"]
    operands: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class Case(Typed):
    """``CASE``: pairs of condition and result, of which only the chosen one is evaluated."""

    branches: tuple[tuple[Typed, Typed], ...]
    otherwise: Typed
