"""The registry of scalar functions: declared by family, found by name, bound to the types of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.functions.patterns import Argument, LambdaArgument, Match, Signature, match
from penstock.sql.types import NULL, SqlType, SqlTypeError, SqlValueError
from penstock.sql.types.conversions import widening

__all__ = [
    "COMPUTATION_ERRORS",
    "About",
    "Bound",
    "Family",
    "FunctionExample",
    "FunctionRegistry",
    "Overload",
    "ScalarFunction",
]

# What a function raises for values that it cannot compute with.
COMPUTATION_ERRORS = (
    SqlValueError,
    ArithmeticError,
    ValueError,
    TypeError,
    LookupError,
    RecursionError,
    AttributeError,
)
Implementation = Callable[..., Any]
Declared = TypeVar("Declared", bound=Callable[..., Any])
ResultRule = Callable[[Sequence[SqlType]], SqlType]


@dataclass(frozen=True, slots=True)
class FunctionExample:
    """A call in SQL and the literal that it equals; the tests run it."""

    call: str
    result: str


@dataclass(frozen=True, slots=True)
class About:
    """The words of DESCRIBE FUNCTION on a function that a user wrote.

    Attributes:
        origin: The file and line.
    """

    description: str = ""
    author: str = ""
    version: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Overload:
    """One implementation with the signatures that it serves.

    Attributes:
        nulls: whether the function is called with null arguments; otherwise the result is null at once.
        typed: whether the implementation takes the types of the arguments and returns the function.
        returns: the result's type where the signature cannot say it.
        by_result: whether the implementation takes the type of the result and returns the function.
    """

    signatures: tuple[Signature, ...]
    implementation: Implementation
    nulls: bool = False
    typed: bool = False
    returns: ResultRule | None = None
    by_result: bool = False


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A function of the language with its documentation."""

    name: str
    family: str
    meaning: str
    examples: tuple[FunctionExample, ...]
    aliases: tuple[str, ...]
    overloads: tuple[Overload, ...]
    about: About | None = None

    @property
    def signatures(self) -> tuple[Signature, ...]:
        """The signatures of all overloads."""
        return tuple(signature for overload in self.overloads for signature in overload.signatures)


@dataclass(frozen=True, slots=True)
class Bound:
    """A function for arguments of known types.

    Attributes:
        name: the function's name.
        type: the type of the result.
        call: the function over values; raises for values that it cannot compute with.
    """

    name: str
    type: SqlType
    call: Callable[..., Any]

    def safe(self, errors: EvaluationErrors) -> Callable[..., Any]:
        """Return the function that returns null in place of an error, and counts and logs the error."""
        call, name = self.call, self.name

        def guarded(*arguments: Any) -> Any:
            try:
                return call(*arguments)
            except COMPUTATION_ERRORS as error:
                errors.report(name, error)
                return None

        return guarded


@dataclass
class Family:
    """Functions of one kind, declared by decorators in one file."""

    name: str
    functions: dict[str, ScalarFunction] = field(default_factory=dict)

    def scalar(
        self,
        *signatures: str,
        examples: Iterable[tuple[str, str]] = (),
        aliases: tuple[str, ...] = (),
        nulls: bool = False,
        returns: ResultRule | None = None,
    ) -> Callable[[Declared], Declared]:
        """Declare a function; its docstring is its documentation."""
        return self._declared(
            signatures, tuple(FunctionExample(*pair) for pair in examples), aliases, (nulls, False, returns)
        )

    def typed(
        self, *signatures: str, examples: Iterable[tuple[str, str]] = (), nulls: bool = False
    ) -> Callable[[Declared], Declared]:
        """Declare a function that depends on its arguments' types: it takes them and returns the function of values."""
        return self._declared(signatures, tuple(FunctionExample(*pair) for pair in examples), (), (nulls, True, None))

    def _declared(
        self,
        texts: tuple[str, ...],
        examples: tuple[FunctionExample, ...],
        aliases: tuple[str, ...],
        rules: tuple[bool, bool, ResultRule | None],
    ) -> Callable[[Declared], Declared]:
        signatures = tuple(Signature.parse(text) for text in texts)
        name = signatures[0].name

        def declare(implementation: Declared) -> Declared:
            overload = Overload(signatures, implementation, *rules)
            existing = self.functions.get(name)
            meaning = (implementation.__doc__ or "").strip() if existing is None else existing.meaning
            before: tuple[Overload, ...] = () if existing is None else existing.overloads
            shown = (*(existing.examples if existing else ()), *examples)
            also = (*(existing.aliases if existing else ()), *aliases)
            self.functions[name] = ScalarFunction(name, self.name, meaning, shown, also, (*before, overload))
            return implementation

        return declare


class FunctionRegistry:
    """Scalar functions by name; names are not case-sensitive."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._functions: dict[str, ScalarFunction] = {}
        for family in families:
            for function in family.functions.values():
                for name in (function.name, *function.aliases):
                    if name in self._functions:
                        raise ValueError(f"two functions are called {name}")
                    self._functions[name] = function

    def extended(self, functions: Iterable[ScalarFunction]) -> FunctionRegistry:
        """Return this registry and further functions."""
        registry = FunctionRegistry(())
        registry._functions = {**self._functions, **{function.name: function for function in functions}}
        return registry

    def __iter__(self) -> Iterator[ScalarFunction]:
        unique = {function.name: function for function in self._functions.values()}
        return iter(sorted(unique.values(), key=lambda function: function.name))

    def __len__(self) -> int:
        return len({function.name for function in self._functions.values()})

    def get(self, name: str) -> ScalarFunction | None:
        """Return a function by its name or alias; ``None`` if there is none."""
        return self._functions.get(name.upper())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all functions, aliases too."""
        return tuple(self._functions)

    def resolve(self, name: str, arguments: Sequence[Argument]) -> Bound:
        """Bind a function to the types of its arguments.

        Exact matches come before those with widened arguments, and fixed parameters before variadic ones.

        Raises:
            SqlTypeError: there is no such function, no signature fits, or several fit equally well.
        """
        function = self.get(name)
        if function is None:
            raise SqlTypeError(f"No function has the name '{name}'")
        types_text = f"({', '.join(map(str, arguments))})"
        for widen in (False, True):
            matches = list(_matches(function, arguments, widen=widen))
            if not matches:
                continue
            fixed = [item for item in matches if not item[1].variadic]
            if len(fixed or matches) == 1 or (widen and fixed):
                overload, _, matched = (fixed or matches)[0]
                return _bind(function.name, overload, arguments, matched)
            raise SqlTypeError(
                f"Function '{name}' is ambiguous for the parameters {types_text}: several signatures fit. "
                "Use CAST to choose."
            )
        valid = "; ".join(map(str, function.signatures))
        raise SqlTypeError(f"Function '{name}' has no signature for the parameters {types_text}. It takes: {valid}")


def _matches(
    function: ScalarFunction, arguments: Sequence[Argument], *, widen: bool
) -> Iterator[tuple[Overload, Signature, Match]]:
    for overload in function.overloads:
        for signature in overload.signatures:
            matched = match(signature, arguments, widen=widen)
            if matched is not None:
                yield overload, signature, matched


def _bind(name: str, overload: Overload, arguments: Sequence[Argument], matched: Match) -> Bound:
    targets = [NULL if isinstance(kind, LambdaArgument) else kind for kind in matched.arguments]
    result = matched.result if overload.returns is None else overload.returns(targets)
    call = overload.implementation
    if overload.typed or overload.by_result:
        call = call(targets if overload.typed else result)
    steps = [
        None if isinstance(source, LambdaArgument) else widening(source, target)
        for source, target in zip(arguments, targets, strict=True)
    ]
    if any(steps):
        call = _widened(call, steps)
    return Bound(name, result, call if overload.nulls else _null_if_null(call))


def _widened(call: Implementation, steps: list[Callable[[Any], Any] | None]) -> Implementation:
    def widened(*arguments: Any) -> Any:
        return call(*(step(value) if step else value for step, value in zip(steps, arguments, strict=True)))

    return widened


def _null_if_null(call: Implementation) -> Implementation:
    def call_unless_null(*arguments: Any) -> Any:
        return None if None in arguments else call(*arguments)

    return call_unless_null
