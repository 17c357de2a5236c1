"""The decorators ``@udf``, ``@udaf`` and ``@udtf``: they note what SQL has to know, and return the object unchanged."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args

from penstock.sql.functions.patterns import Signature
from penstock.sql.functions.user.annotations import LISTS
from penstock.sql.functions.user.declarations import (
    NOTE,
    Declaration,
    Kind,
    described_by,
    signatures_of,
    taken_by,
    wrong,
)
from penstock.sql.types import SqlType

__all__ = ["udaf", "udf", "udtf"]

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
