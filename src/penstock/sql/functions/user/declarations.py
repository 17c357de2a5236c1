"""Decorators of users' functions, what they declare, and types of SQL from annotations."""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from penstock.errors import SqlFunctionError
from penstock.sql.functions.patterns import LambdaPattern, Signature, SignatureParameter, Variable
from penstock.sql.functions.registry import About
from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    MapType,
    SqlType,
    StructType,
)
from penstock.sql.types.sql_type import inner_types

__all__ = [
    "NOTE",
    "Declaration",
    "Taken",
    "UnknownType",
    "pattern_of",
    "udaf",
    "udf",
    "udtf",
    "without_null",
]

PLAIN: dict[Any, SqlType] = {
    bool: BOOLEAN,
    int: BIGINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    Decimal: Variable("DECIMAL"),
    date: DATE,
    time: TIME,
    datetime: TIMESTAMP,
    Any: Variable("ANY"),
    object: Variable("ANY"),
}
LISTS = (list, tuple, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Iterator)
GENERATORS = (collections.abc.Generator,)
MAPS = (dict, collections.abc.Mapping)


class UnknownType(Exception):  # noqa: N818
    """An annotation that stands for no type of SQL."""


def allows_null(annotation: Any) -> bool:
    """Return whether None is among the values of an annotation.

    >>> allows_null(int | None), allows_null(int)
    (True, False)
    """
    if get_origin(annotation) is Annotated:
        return allows_null(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return type(None) in get_args(annotation)
    return annotation in (Any, object, None)


def without_null(annotation: Any) -> Any:
    """Return the annotation of the values that are not None."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    rest = [part for part in get_args(annotation) if part is not type(None)]
    if len(rest) != 1:
        raise UnknownType(f"{annotation} has several types")
    return rest[0]


def pattern_of(annotation: Any) -> SqlType:
    """Return the type of SQL that an annotation stands for.

    Type variables and Decimal leave parts of it to the arguments.

    Raises:
        UnknownType: There is none.

    >>> str(pattern_of(dict[str, list[int]])), str(pattern_of(Annotated[Decimal, "DECIMAL(6, 2)"]))
    ('MAP<STRING, ARRAY<BIGINT>>', 'DECIMAL(6, 2)')
    """
    if get_origin(annotation) is Annotated:
        return _annotated(annotation)
    plain = without_null(annotation)
    if isinstance(plain, TypeVar):
        return Variable(plain.__name__.strip("_").upper() or "T")
    if isinstance(plain, typing.Hashable) and plain in PLAIN:
        return PLAIN[plain]
    origin, parts = get_origin(plain), get_args(plain)
    if origin is Annotated:
        return _annotated(plain)
    if origin in LISTS + GENERATORS and parts:
        return ArrayType(pattern_of(parts[0]))
    if origin in MAPS and len(parts) == 2:
        return MapType(pattern_of(parts[0]), pattern_of(parts[1]))
    if origin is collections.abc.Callable and len(parts) == 2 and isinstance(parts[0], list):
        return LambdaPattern(tuple(map(pattern_of, parts[0])), pattern_of(parts[1]))
    if isinstance(plain, type) and (dataclasses.is_dataclass(plain) or typing.is_typeddict(plain)):
        upper = dataclasses.is_dataclass(plain)
        hints = typing.get_type_hints(plain, include_extras=True)
        return StructType.of([(name.upper() if upper else name, pattern_of(hint)) for name, hint in hints.items()])
    raise UnknownType(f"{getattr(plain, '__name__', plain)} is not an SQL type")


def _annotated(annotation: Any) -> SqlType:
    texts = [text for text in get_args(annotation)[1:] if isinstance(text, str)]
    if not texts:
        return pattern_of(get_args(annotation)[0])
    try:
        return Signature.parse(f"F() {texts[0]}").result
    except ValueError as error:
        raise UnknownType(f"{texts[0]!r}: {error}") from error


NOTE = "__penstock_sql__"  # the attribute with the declarations of an object
Kind = Literal["scalar", "aggregate", "table"]
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
EMPTY = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Taken:
    """A parameter of a Python function.

    Attributes:
        annotation: Its annotation; None for those of explicit signatures.
        optional: Whether it has a default.
    """

    name: str
    annotation: Any
    variadic: bool = False
    optional: bool = False

    @property
    def nullable(self) -> bool:
        """Whether the function wants to see null."""
        return allows_null(self.annotation)


@dataclass(frozen=True, slots=True)
class Declaration:
    """One use of a decorator.

    Attributes:
        target: The function, or the class of an aggregate.
        annotated: The parameters by their annotations; empty for explicit signatures.
        nulls: Whether all arguments may be null.
        settings: Whether the target has a parameter ``settings``.
        rows: Of an aggregate: the number of parameters of ``add`` behind the state; those behind them are literals.
        returns: Decides the result's type where a signature cannot.
    """

    kind: Kind
    name: str
    target: Any
    signatures: tuple[Signature, ...]
    annotated: tuple[Taken, ...]
    about: About
    nulls: bool = False
    settings: bool = False
    rows: int = 0
    returns: Callable[[Sequence[SqlType]], SqlType | str] | None = None


def place_of(target: Any) -> str:
    """Return the file and line of a function or class."""
    try:
        code = inspect.unwrap(target)
        return f"{inspect.getsourcefile(code)}:{inspect.getsourcelines(code)[1]}"
    except (OSError, TypeError):
        return str(getattr(target, "__module__", "") or "")


def wrong(target: Any, reason: str, hint: str = "") -> SqlFunctionError:
    """Return the error for a function that cannot be one of SQL."""
    name = getattr(target, "__qualname__", repr(target))
    return SqlFunctionError(f"{name} ({place_of(target)}) cannot be a function of SQL: {reason}", hint=hint)


def described_by(target: Any, description: str, author: str, version: str) -> tuple[str, About]:
    """Return the description, by default the docstring's first paragraph, and what else is known."""
    text = description or inspect.cleandoc(target.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return text, About(text, author, version, place_of(target))


def taken_by(function: Any, skipped: int = 0) -> tuple[tuple[Taken, ...], bool]:
    """Return the parameters of a function behind the first ones, and whether it takes ``settings``.

    Raises:
        SqlFunctionError: A parameter has no annotation, or can only be given by name.
    """
    taken: list[Taken] = []
    settings = False
    parameters = list(inspect.signature(function).parameters.values())[skipped:]
    hints = _hints(function)
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            if parameter.name != "settings":
                raise wrong(function, f"the parameter {parameter.name} can only be given by name")
            settings = True
            continue
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise wrong(function, f"**{parameter.name} has no counterpart in SQL")
        variadic = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        annotation = hints.get(parameter.name)
        if annotation is None and parameter.annotation is EMPTY:
            raise wrong(
                function,
                f"the parameter {parameter.name} has no annotation",
                "Annotate it, or write the signature: @udf('NAME(parameter TYPE) RESULT').",
            )
        taken.append(Taken(parameter.name, annotation, variadic, parameter.default is not EMPTY))
    return tuple(taken), settings


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise wrong(
            function, f"its annotations cannot be read: {error}", "Import what they name outside of functions."
        ) from error


def signatures_of(target: Any, name: str, taken: Sequence[Taken], result: Any) -> tuple[Signature, ...]:
    """Return the signatures of annotated parameters: one, and one more for each parameter that may be left out."""
    try:
        parameters = [SignatureParameter(each.name, pattern_of(each.annotation), each.variadic) for each in taken]
        kind = pattern_of(result)
    except UnknownType as error:
        raise wrong(target, str(error), "Write the signature: @udf('NAME(parameter TYPE) RESULT').") from error
    first = next((at for at, each in enumerate(taken) if each.optional), len(parameters))
    ends = range(first, len(parameters) + 1) if first < len(parameters) else [len(parameters)]
    signatures = tuple(Signature(name, tuple(parameters[:end]), kind) for end in ends)
    for signature in signatures:
        loose = _variables(kind) - {variable for each in signature.parameters for variable in _variables(each.type)}
        if loose:
            raise wrong(
                target,
                f"nothing decides {', '.join(sorted(loose))} of its result {kind}",
                "Name the type: Annotated[Decimal, 'DECIMAL(10, 2)'].",
            )
    return signatures


def _variables(kind: SqlType) -> set[str]:
    if isinstance(kind, Variable):
        return {kind.name}
    inner = (kind.result,) if isinstance(kind, LambdaPattern) else inner_types(kind)
    return set[str]().union(*map(_variables, inner))


Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Returns = Callable[[Sequence[SqlType]], SqlType | str]
STEPS = ("initialise", "add", "merge")


def udf(
    *signatures: Any,
    name: str = "",
    description: str = "",
    author: str = "",
    version: str = "",
    nulls: bool = False,
    returns: Returns | None = None,
) -> Any:
    """Make a Python function one of SQL: a row in, a value out. Kafka: ksqlDB's ``@UdfDescription`` and ``@Udf``.

    Types come from annotations (``int`` is BIGINT, ``float`` DOUBLE, ``Decimal`` DECIMAL, ``datetime`` TIMESTAMP,
    ``list[T]`` ARRAY, ``dict[K, V]`` MAP, a dataclass or TypedDict STRUCT, a TypeVar any type, ``Callable`` a lambda,
    ``*rest`` any number of arguments) or from signatures. Null arguments give null, unless a parameter is annotated
    ``T | None``. An exception makes the value null and is logged. A parameter ``*, settings`` takes what is set below
    ``ksql.functions.<name>.``.

    Args:
        signatures: Signatures such as ``"CLAMP(value T, low T, high T) T"``, in place of annotations.
        name: The name in SQL; by default that of the function.
        description: For DESCRIBE FUNCTION; by default the docstring.
        author: For DESCRIBE FUNCTION.
        version: For DESCRIBE FUNCTION.
        nulls: Whether a function with signatures is called with nulls.
        returns: Takes the types of the arguments and returns the result's, where a signature cannot say it.

    Raises:
        SqlFunctionError: A type is unknown, or a signature cannot be read.

    >>> @udf
    ... def initials(*names: str) -> str:
    ...     "First letters."
    ...     return "".join(name[:1] for name in names)
    >>> initials("Ada", "Lovelace")
    'AL'
    """
    about = (description, author, version)

    def declare(function: Any, texts: Sequence[str]) -> Any:
        return _function("scalar", function, texts, (name, about, nulls, returns))

    return _applied(signatures, declare)


def udtf(
    *signatures: Any, name: str = "", description: str = "", author: str = "", version: str = "", nulls: bool = False
) -> Any:
    """Make a Python function a table function: a row in, any number of rows out. Kafka: ksqlDB's ``@Udtf``.

    The function returns a list or yields; the result's type is that of one row. All else is as with `udf`.

    >>> from collections.abc import Iterator
    >>> @udtf
    ... def words(text: str) -> Iterator[str]:
    ...     yield from text.split()
    >>> list(words("a b"))
    ['a', 'b']
    """
    about = (description, author, version)

    def declare(function: Any, texts: Sequence[str]) -> Any:
        return _function("table", function, texts, (name, about, nulls, None))

    return _applied(signatures, declare)


def udaf(
    *signatures: Any, name: str = "", description: str = "", author: str = "", version: str = "", nulls: bool = False
) -> Any:
    """Make a class an aggregate function: rows in, a value out. Kafka: ksqlDB's ``@UdafFactory``.

    The class has ``initialise()``, which returns the state of no rows, ``add(state, *arguments)``, which returns the
    state with a row, and ``merge(one, two)`` for session windows; it may have ``result(state)``, and
    ``undo(state, *arguments)``, without which it cannot aggregate tables. States are plain JSON, or what the annotation
    of ``initialise`` says. Parameters of ``__init__`` are the last arguments of the call, which then must be literals.
    Rows with a null are left out, unless a parameter of ``add`` is annotated ``T | None``.

    >>> @udaf
    ... class Longest:
    ...     "The longest text."
    ...     def initialise(self) -> str: return ""
    ...     def add(self, state: str, text: str) -> str: return max(state, text, key=len)
    ...     def merge(self, one: str, two: str) -> str: return max(one, two, key=len)
    >>> Longest().add("a", "bcd")
    'bcd'
    """
    about = (description, author, version)

    def declare(target: Any, texts: Sequence[str]) -> Any:
        return _aggregate(target, texts, (name, about, nulls))

    return _applied(signatures, declare)


def _applied(signatures: tuple[Any, ...], declare: Callable[[Any, Sequence[str]], Any]) -> Any:
    """Return the object, where the decorator stands without brackets, else the decorator."""
    if len(signatures) == 1 and not isinstance(signatures[0], str):
        return declare(signatures[0], ())
    return lambda target: declare(target, signatures)


def _noted(target: Any, declaration: Declaration) -> Any:
    setattr(target, NOTE, (*target.__dict__.get(NOTE, ()), declaration))
    return target


def _parsed(target: Any, texts: Sequence[str]) -> tuple[Signature, ...]:
    signatures = []
    for text in texts:
        try:
            signatures.append(Signature.parse(text))
        except ValueError as error:
            raise wrong(target, f"the signature {text!r} cannot be read: {error}") from error
    names = {signature.name.upper() for signature in signatures}
    if len(names) > 1:
        raise wrong(target, f"its signatures have several names: {', '.join(sorted(names))}")
    return tuple(signatures)


def _function(
    kind: Kind,
    function: Any,
    texts: Sequence[str],
    rest: tuple[str, tuple[str, str, str], bool, Returns | None],
) -> Any:
    name, about, nulls, returns = rest
    if not callable(function) or inspect.isclass(function):
        raise wrong(function, "it is not a function", "Classes are aggregates: @udaf.")
    signatures = _parsed(function, texts)
    takes_settings = "settings" in inspect.signature(function).parameters
    function_name = (signatures[0].name if signatures else name or function.__name__).upper()
    taken: tuple[Any, ...] = ()
    if not signatures:
        taken, takes_settings = taken_by(function)
        result = typing.get_type_hints(function, include_extras=True).get("return")
        if result is None and returns is None:
            raise wrong(function, "its result has no annotation", "Annotate it: -> str")
        if kind == "table":
            result = _row_of(function, result)
        signatures = signatures_of(function, function_name, taken, Any if returns is not None else result)
        if returns is None and any(str(signature.result) == "ANY" for signature in signatures):
            raise wrong(function, "the type of its result is open", "Annotate it, or give returns=.")
    _, described = described_by(function, *about)
    return _noted(
        function,
        Declaration(kind, function_name, function, signatures, taken, described, nulls, takes_settings, 0, returns),
    )


def _row_of(function: Any, result: Any) -> Any:
    origin, parts = typing.get_origin(result), get_args(result)
    if not parts or origin not in (*LISTS, typing.get_origin(typing.Generator[int, None, None])):
        raise wrong(function, "a table function returns rows", "Annotate it: -> Iterator[str], or -> list[str]")
    return parts[0]


def _aggregate(target: Any, texts: Sequence[str], rest: tuple[str, tuple[str, str, str], bool]) -> Any:
    name, about, nulls = rest
    is_class = inspect.isclass(target)  # in a variable, so that the type of target stays open
    if not is_class:
        raise wrong(target, "an aggregate is a class", "Functions of one row are @udf.")
    missing = [step for step in STEPS if not callable(getattr(target, step, None))]
    if missing:
        raise wrong(target, f"it has no {' and no '.join(missing)}")
    has_init = "__init__" in target.__dict__
    fixed, settings = taken_by(target.__init__, 1) if has_init else ((), False)
    count = len(inspect.signature(target.add).parameters) - 2
    signatures = _parsed(target, texts)
    function_name = (signatures[0].name if signatures else name or target.__name__).upper()
    taken: tuple[Any, ...] = ()
    if not signatures:
        rows, _ = taken_by(target.add, 2)
        taken = (*rows, *fixed)
        last = getattr(target, "result", None) or target.initialise
        result = typing.get_type_hints(last, include_extras=True).get("return")
        if result is None:
            raise wrong(target, "its result has no annotation", "Annotate result(), or initialise() without it.")
        signatures = signatures_of(target, function_name, taken, result)
    _, described = described_by(target, *about)
    return _noted(
        target,
        Declaration("aggregate", function_name, target, signatures, taken, described, nulls, settings, count),
    )
