"""SQL types as frozen values, whose ``str(type)`` is the canonical text, and the errors of types and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = [
    "BIGINT",
    "BOOLEAN",
    "BYTES",
    "DATE",
    "DOUBLE",
    "INTEGER",
    "INTERVAL_UNIT",
    "NULL",
    "STRING",
    "TIME",
    "TIMESTAMP",
    "ArrayType",
    "DecimalType",
    "MapType",
    "Primitive",
    "SqlType",
    "SqlTypeError",
    "SqlValueError",
    "StructField",
    "StructType",
    "base_name",
    "inner_types",
    "is_numeric",
    "is_open",
    "quoted",
    "with_inner_types",
]


class SqlTypeError(TypeError):
    """Types that do not fit together. The statement is refused; its position is added by the caller."""


class SqlValueError(ValueError):
    """A value that cannot be computed. The expression becomes null, and the error is counted."""


class SqlType:
    """A type of a column or an expression. Equal types compare equal and may be keys of a dict."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Primitive(SqlType):
    """A type without parameters.

    >>> str(BIGINT)
    'BIGINT'
    """

    name: str

    def __str__(self) -> str:
        return self.name


BOOLEAN = Primitive("BOOLEAN")
INTEGER = Primitive("INTEGER")
BIGINT = Primitive("BIGINT")
DOUBLE = Primitive("DOUBLE")
STRING = Primitive("STRING")
BYTES = Primitive("BYTES")
DATE = Primitive("DATE")
TIME = Primitive("TIME")
TIMESTAMP = Primitive("TIMESTAMP")
NULL = Primitive("null")  # of the literal NULL; no column has it
INTERVAL_UNIT = Primitive("INTERVALUNIT")  # of DAYS in DATEADD(DAYS, 1, d); no column has it


@dataclass(frozen=True, slots=True)
class DecimalType(SqlType):
    """An exact number of ``precision`` digits, ``scale`` of them behind the point.

    >>> str(DecimalType(4, 2))
    'DECIMAL(4, 2)'
    """

    precision: int
    scale: int

    def __post_init__(self) -> None:
        if self.precision < 1:
            raise SqlTypeError(f"DECIMAL precision must be >= 1: DECIMAL({self.precision},{self.scale})")
        if self.scale < 0:
            raise SqlTypeError(f"DECIMAL scale must be >= 0: DECIMAL({self.precision},{self.scale})")
        if self.precision < self.scale:
            raise SqlTypeError(f"DECIMAL precision must be >= scale: DECIMAL({self.precision},{self.scale})")

    def __str__(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True)
class ArrayType(SqlType):
    """A list of values of one type.

    >>> str(ArrayType(STRING))
    'ARRAY<STRING>'
    """

    element: SqlType

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapType(SqlType):
    """Values of one type by keys of another.

    >>> str(MapType(STRING, INTEGER))
    'MAP<STRING, INTEGER>'
    """

    key: SqlType
    value: SqlType

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>"


@dataclass(frozen=True, slots=True)
class StructField:
    """A named field of a struct."""

    name: str
    type: SqlType

    def __str__(self) -> str:
        return f"{quoted(self.name)} {self.type}"


@dataclass(frozen=True, slots=True)
class StructType(SqlType):
    """Named fields in an order.

    >>> str(StructType.of(A=INTEGER, b=STRING))
    'STRUCT<`A` INTEGER, `b` STRING>'
    """

    fields: tuple[StructField, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for field in self.fields:
            if field.name in seen:
                raise SqlTypeError(f"Duplicate field names found in STRUCT: {quoted(field.name)}")
            seen.add(field.name)

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, SqlType]] = (), /, **fields: SqlType) -> StructType:
        """Make a struct of pairs of names and types, or of keywords."""
        return cls(tuple(StructField(name, kind) for name, kind in (*pairs, *fields.items())))

    def field(self, name: str) -> SqlType | None:
        """Return the type of a field, or ``None`` if there is none of that name; names are case-sensitive."""
        return next((field.type for field in self.fields if field.name == name), None)

    def __str__(self) -> str:
        return f"STRUCT<{', '.join(map(str, self.fields))}>"


def is_open(kind: SqlType) -> bool:
    """Return whether a type is that of a null without a type, or holds one.

    >>> is_open(ArrayType(NULL)), is_open(ArrayType(STRING))
    (True, False)
    """
    return kind == NULL or any(map(is_open, inner_types(kind)))


def inner_types(kind: SqlType) -> tuple[SqlType, ...]:
    """Return the types directly within a type.

    >>> inner_types(MapType(STRING, ArrayType(DATE)))
    (Primitive(name='STRING'), ArrayType(element=Primitive(name='DATE')))
    """
    match kind:
        case ArrayType(element):
            return (element,)
        case MapType(key, value):
            return key, value
        case StructType(fields):
            return tuple(field.type for field in fields)
    return ()


def with_inner_types(kind: SqlType, change: Callable[[SqlType], SqlType]) -> SqlType:
    """Return a type with the types directly within it changed; one that holds none stays.

    >>> str(with_inner_types(StructType.of(A=INTEGER, B=DATE), ArrayType))
    'STRUCT<`A` ARRAY<INTEGER>, `B` ARRAY<DATE>>'
    """
    match kind:
        case ArrayType(element):
            return ArrayType(change(element))
        case MapType(key, value):
            return MapType(change(key), change(value))
        case StructType(fields):
            return StructType.of([(field.name, change(field.type)) for field in fields])
    return kind


def quoted(name: str) -> str:
    """Return a name in backticks, as types print their fields.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def base_name(kind: SqlType) -> str:
    """Return the name of a type without its parameters, as messages use it.

    >>> base_name(DecimalType(3, 1)), base_name(ArrayType(STRING))
    ('DECIMAL', 'ARRAY')
    """
    match kind:
        case DecimalType():
            return "DECIMAL"
        case ArrayType():
            return "ARRAY"
        case MapType():
            return "MAP"
        case StructType():
            return "STRUCT"
    return str(kind)


def is_numeric(kind: SqlType) -> bool:
    """Return whether a type is INTEGER, BIGINT, DECIMAL or DOUBLE."""
    return kind in (INTEGER, BIGINT, DOUBLE) or isinstance(kind, DecimalType)
