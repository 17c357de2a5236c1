"""Signatures as text, such as ``ARRAY_JOIN(array ARRAY<T>, delimiter STRING) STRING``, and how arguments match them.

One capital letter stands for any type and must mean the same everywhere in a signature; ``ANY`` stands for any type;
``DECIMAL`` for one of any precision, ``DECIMAL(10, 2)`` for one; ``(T) => R`` for a lambda; ``STRING...`` for any
number of arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.sql.types import (
    NULL,
    ArrayType,
    DecimalType,
    MapType,
    Primitive,
    SqlType,
    SqlTypeError,
    StructType,
    sql_type,
)
from penstock.sql.types.conversions import as_decimal, common_type, widens
from penstock.sql.types.sql_type import with_inner_types

__all__ = [
    "Argument",
    "LambdaArgument",
    "LambdaPattern",
    "Match",
    "Signature",
    "SignatureParameter",
    "Variable",
    "match",
]

TOKEN = re.compile(r"\s*(=>|\.\.\.|[A-Za-z_0-9]+|[(),<>])")
PRIMITIVES = {str(kind): kind for kind in vars(sql_type).values() if isinstance(kind, Primitive)}
ALIASES = {"INT": "INTEGER", "VARCHAR": "STRING"}


@dataclass(frozen=True, slots=True)
class Variable(SqlType):
    """A type that the arguments decide; ``DECIMAL`` is one that must be a decimal."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class LambdaPattern(SqlType):
    """A lambda: the types of its parameters and of its result."""

    parameters: tuple[SqlType, ...]
    result: SqlType

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parameters))}) => {self.result}"


@dataclass(frozen=True, slots=True)
class LambdaArgument:
    """A lambda that is passed: its number of parameters, and the inference of its result from their types."""

    arity: int
    infer: Callable[[Sequence[SqlType]], SqlType]

    def __str__(self) -> str:
        return "LAMBDA"


Argument = SqlType | LambdaArgument


@dataclass(frozen=True, slots=True)
class SignatureParameter:
    """A parameter of a signature."""

    name: str
    type: SqlType
    variadic: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.type}{'...' if self.variadic else ''}"


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a function and the type of its result."""

    name: str
    parameters: tuple[SignatureParameter, ...]
    result: SqlType

    @property
    def variadic(self) -> bool:
        """Whether a parameter takes any number of arguments."""
        return any(parameter.variadic for parameter in self.parameters)

    def spread(self, count: int) -> tuple[SqlType, ...] | None:
        """Return the parameters' types for a number of arguments; ``None`` if it does not fit."""
        extra = count - len(self.parameters)
        if not self.variadic:
            return None if extra else tuple(parameter.type for parameter in self.parameters)
        if extra < -1:
            return None
        types: list[SqlType] = []
        for parameter in self.parameters:
            types += [parameter.type] * (extra + 1 if parameter.variadic else 1)
        return tuple(types)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))}) {self.result}"

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Read a signature.

        >>> str(Signature.parse("TRANSFORM(array ARRAY<T>, each (T) => R) ARRAY<R>"))
        'TRANSFORM(array ARRAY<T>, each (T) => R) ARRAY<R>'
        """
        words = TOKEN.findall(text)
        if "".join(words) != re.sub(r"\s", "", text):
            raise ValueError(f"not a signature: {text}")
        return _SignatureReader(words).signature()


class _SignatureReader:
    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._at = 0

    def _next(self, expected: str | None = None) -> str:
        word = self._words[self._at] if self._at < len(self._words) else ""
        if not word or (expected and word != expected):
            raise ValueError(f"expected {expected or 'more'} after {' '.join(self._words[: self._at])}")
        self._at += 1
        return word

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _listed(self, end: str) -> Iterator[None]:
        while self._peek() != end:
            yield
            if self._peek() != end:
                self._next(",")
        self._next(end)

    def signature(self) -> Signature:
        name = self._next()
        self._next("(")
        parameters = [self._parameter() for _ in self._listed(")")]
        return Signature(name, tuple(parameters), self._type())

    def _parameter(self) -> SignatureParameter:
        name, kind = self._next(), self._type()
        variadic = self._peek() == "..."
        if variadic:
            self._next()
        return SignatureParameter(name, kind, variadic)

    def _type(self) -> SqlType:
        word = self._next()
        if word == "(":
            inner = tuple(self._type() for _ in self._listed(")"))
            self._next("=>")
            return LambdaPattern(inner, self._type())
        if word == "ARRAY":
            self._next("<")
            kind: SqlType = ArrayType(self._type())
            self._next(">")
            return kind
        if word == "MAP":
            self._next("<")
            key = self._type()
            self._next(",")
            kind = MapType(key, self._type())
            self._next(">")
            return kind
        if word == "STRUCT":
            self._next("<")
            return StructType.of([(self._next(), self._type()) for _ in self._listed(">")])
        word = ALIASES.get(word, word)
        if word in PRIMITIVES:
            return PRIMITIVES[word]
        if word == "DECIMAL" and self._peek() == "(":
            return self._decimal()
        if len(word) == 1 or word in ("ANY", "DECIMAL"):
            return Variable(word)
        raise ValueError(f"{word} is not a type")

    def _decimal(self) -> DecimalType:
        self._next("(")
        precision, _, scale, _ = self._next(), self._next(","), self._next(), self._next(")")
        try:
            return DecimalType(int(precision), int(scale))
        except SqlTypeError as error:
            raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Match:
    """Arguments that fit a signature: the types that they are widened to, and the type of the result."""

    arguments: tuple[Argument, ...]
    result: SqlType


def match(signature: Signature, arguments: Sequence[Argument], *, widen: bool) -> Match | None:
    """Return whether arguments fit a signature, exactly or (``widen``) with implicit conversions.

    >>> ints = ArrayType(PRIMITIVES["INTEGER"])
    >>> str(match(Signature.parse("FIRST(array ARRAY<T>) T"), [ints], widen=False).result)
    'INTEGER'
    """
    patterns = signature.spread(len(arguments))
    if patterns is None:
        return None
    bound: dict[str, SqlType] = {}
    pairs = list(zip(patterns, arguments, strict=True))
    for pattern, argument in pairs:
        if isinstance(pattern, LambdaPattern) != isinstance(argument, LambdaArgument):
            return None
        if isinstance(argument, SqlType) and not _unify(pattern, argument, bound, widen=widen):
            return None
    for pattern, argument in pairs:
        if isinstance(pattern, LambdaPattern) and isinstance(argument, LambdaArgument):
            if argument.arity != len(pattern.parameters):
                return None
            result_type = argument.infer([_filled(kind, bound) for kind in pattern.parameters])
            if not _unify(pattern.result, result_type, bound, widen=widen):
                return None
    targets = [_target(pattern, argument, bound) for pattern, argument in pairs]
    return Match(tuple(targets), _filled(signature.result, bound))


def _unify(pattern: SqlType, argument: SqlType, bound: dict[str, SqlType], *, widen: bool) -> bool:
    match pattern, argument:
        case Variable("ANY"), _:
            return True
        case Variable("DECIMAL"), _:
            return _unify_decimal(argument, bound, widen=widen)
        case Variable(name), _:
            return _bind(name, argument, bound, widen=widen)
        case _ if argument == NULL:
            return True
        case ArrayType(inner), ArrayType(element):
            return _unify(inner, element, bound, widen=widen)
        case MapType(key, value), MapType(given_key, given_value):
            return _unify(key, given_key, bound, widen=widen) and _unify(value, given_value, bound, widen=widen)
        case StructType(fields), StructType(given_fields) if len(fields) == len(given_fields):
            pairs = zip(fields, given_fields, strict=True)
            return all(one.name == two.name and _unify(one.type, two.type, bound, widen=widen) for one, two in pairs)
    return pattern == argument or (widen and widens(argument, pattern))


def _unify_decimal(argument: SqlType, bound: dict[str, SqlType], *, widen: bool) -> bool:
    if argument == NULL:
        return True
    if not isinstance(argument, DecimalType):
        if not widen or str(argument) not in ("INTEGER", "BIGINT"):
            return False
        argument = as_decimal(argument)
    bound["DECIMAL"] = common_type(bound.get("DECIMAL", NULL), argument)
    return True


def _bind(name: str, argument: SqlType, bound: dict[str, SqlType], *, widen: bool) -> bool:
    bound_type = bound.get(name, NULL)
    if bound_type != NULL and argument not in (bound_type, NULL):
        try:
            wider = common_type(bound_type, argument)
        except SqlTypeError:
            return False
        decimals = isinstance(bound_type, DecimalType) and isinstance(argument, DecimalType)
        if not widen and not decimals:
            return False
        argument = wider
    bound[name] = bound_type if argument == NULL else argument
    return True


def _target(pattern: SqlType, argument: Argument, bound: dict[str, SqlType]) -> Argument:
    if isinstance(argument, LambdaArgument):
        return argument
    if pattern == Variable("ANY") or (pattern == Variable("DECIMAL") and isinstance(argument, DecimalType)):
        return argument  # decimals keep their own scale
    return _filled(pattern, bound)


def _filled(pattern: SqlType, bound: dict[str, SqlType]) -> SqlType:
    if isinstance(pattern, Variable):
        return bound.get(pattern.name, NULL)
    return with_inner_types(pattern, lambda inner: _filled(inner, bound))
