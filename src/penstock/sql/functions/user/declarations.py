"""What a decorator notes of a Python function: its name in SQL, its signatures, how values reach it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock.errors import SqlFunctionError
from penstock.sql.functions.patterns import LambdaPattern, Signature, SignatureParameter, Variable
from penstock.sql.functions.registry import About
from penstock.sql.functions.user.annotations import UnknownType, allows_null, pattern_of
from penstock.sql.types import SqlType
from penstock.sql.types.sql_type import inner_types

__all__ = ["NOTE", "Declaration", "Taken", "described_by", "place_of", "signatures_of", "taken_by", "wrong"]

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
