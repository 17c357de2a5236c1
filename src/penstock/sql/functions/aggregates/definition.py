"""What an aggregate function is: a state that is plain JSON, the steps that change it, and JSON of values."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from penstock.sql.functions.patterns import Signature, match
from penstock.sql.functions.registry import About
from penstock.sql.types import BYTES, DATE, DOUBLE, TIME, DecimalType, SqlType, SqlTypeError
from penstock.sql.types.conversions import nested_conversion, widening
from penstock.sql.types.numbers import decimal_text, double_text
from penstock.sql.types.texts import date_of, days_of, millis_of_day, time_of

__all__ = ["AggregateFunction", "AggregateRegistry", "AggregateSteps", "BoundAggregate", "from_state", "to_state"]

Step = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class AggregateSteps:
    """The steps of an aggregate for arguments of known types.

    A step takes a state and returns the new one; it may change lists and dicts in place. States hold what JSON holds;
    decimals, dates, times and bytes in them are written by `to_state`.

    Attributes:
        initialise: the state of no rows.
        add: the state after a row; takes the state and the row's arguments.
        merge: the state of two, the first of them the older; for session windows.
        result: the value of a state.
        undo: the state before a row, for tables; ``None`` if it cannot be undone.
        type: the type of the result.
    """

    initialise: Callable[[], Any]
    add: Step
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    type: SqlType
    undo: Step | None = None


Factory = Callable[[Sequence[SqlType], Sequence[Any]], AggregateSteps]


@dataclass(frozen=True, slots=True)
class BoundAggregate:
    """An aggregate function for arguments of known types and constants.

    Attributes:
        columns: the number of leading arguments that are expressions of a row; the others were constants.
    """

    name: str
    columns: int
    steps: AggregateSteps

    @property
    def type(self) -> SqlType:
        """The type of the result."""
        return self.steps.type

    def fold(self, rows: Iterable[Sequence[Any]]) -> Any:
        """Return the result over rows of arguments."""
        state = self.steps.initialise()
        for row in rows:
            state = self.steps.add(state, *row)
        return self.steps.result(state)


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate function of the language with its documentation.

    Attributes:
        constants: the number of trailing parameters that must be literals, such as the K of TOPK, by signature.
        example: rows of arguments, and the result over them; the tests run it.
        others: further implementations for other arguments, under the same name.
    """

    name: str
    meaning: str
    signatures: tuple[Signature, ...]
    constants: tuple[int, ...]
    factory: Factory
    can_undo: bool
    example: tuple[tuple[Any, ...], Any] = field(default=((), None))
    others: tuple[AggregateFunction, ...] = ()
    about: About | None = None


class AggregateRegistry:
    """Aggregate functions by name; names are not case-sensitive."""

    def __init__(self, functions: Iterable[AggregateFunction]) -> None:
        self._functions = {function.name: function for function in functions}

    def extended(self, functions: Iterable[AggregateFunction]) -> AggregateRegistry:
        """Return this registry and further functions."""
        return AggregateRegistry((*self._functions.values(), *functions))

    def __iter__(self) -> Iterator[AggregateFunction]:
        return iter(sorted(self._functions.values(), key=lambda function: function.name))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all functions."""
        return tuple(self._functions)

    def get(self, name: str) -> AggregateFunction | None:
        """Return a function by its name; ``None`` if there is none."""
        return self._functions.get(name.upper())

    def resolve(self, name: str, kinds: Sequence[SqlType], constants: Sequence[Any] = ()) -> BoundAggregate:
        """Bind a function to the types of its arguments, and the values of those that are literals, from the last back.

        Raises:
            SqlTypeError: there is no such function, no signature fits, or a literal is missing or out of range.
        """
        function = self.get(name)
        if function is None:
            raise SqlTypeError(f"No function has the name '{name}'")
        types_text = f"({', '.join(map(str, kinds))})"
        for widen in (False, True):
            for each in (function, *function.others):
                for signature, literal_count in zip(each.signatures, each.constants, strict=True):
                    matched = match(signature, kinds, widen=widen)
                    if matched is not None:
                        targets = [kind for kind in matched.arguments if isinstance(kind, SqlType)]
                        columns = len(kinds) - _literals(signature, literal_count, len(kinds))
                        return _bound(each, columns, (kinds, targets), constants)
        valid = "; ".join(
            str(valid_signature) for each in (function, *function.others) for valid_signature in each.signatures
        )
        raise SqlTypeError(f"Function '{name}' has no signature for the parameters {types_text}. It takes: {valid}")


def _literals(signature: Signature, literal_count: int, argument_count: int) -> int:
    """Return the number of trailing arguments that must be literals."""
    fixed = len(signature.parameters) - literal_count
    variadic = any(parameter.variadic for parameter in signature.parameters[fixed:])
    return argument_count - fixed if variadic else literal_count


def _bound(
    function: AggregateFunction,
    columns: int,
    types: tuple[Sequence[SqlType], Sequence[SqlType]],
    constants: Sequence[Any],
) -> BoundAggregate:
    kinds, targets = types
    literal_count = len(kinds) - columns
    values = list(constants[len(constants) - literal_count :]) if literal_count else []
    if len(values) < literal_count or None in values:
        raise SqlTypeError(f"Parameter {len(kinds)} of function '{function.name}' must be a literal")
    steps = function.factory(targets[:columns], values)
    return BoundAggregate(function.name, columns, _widened(steps, kinds[:columns], targets[:columns]))


def _widened(steps: AggregateSteps, sources: Sequence[SqlType], targets: Sequence[SqlType]) -> AggregateSteps:
    conversions = [widening(source, target) for source, target in zip(sources, targets, strict=True)]
    if not any(conversions):
        return steps

    def convert(step: Step) -> Step:
        def converted(state: Any, *row: Any) -> Any:
            return step(state, *(c(v) if c else v for c, v in zip(conversions, row, strict=True)))

        return converted

    undo = convert(steps.undo) if steps.undo else None
    return AggregateSteps(steps.initialise, convert(steps.add), steps.merge, steps.result, steps.type, undo)


Convert = Callable[[Any], Any]


def to_state(kind: SqlType) -> Convert:
    """Return the function that makes values of a type plain JSON.

    >>> to_state(DecimalType(3, 1))(Decimal("1.5"))
    '1.5'
    """
    return _converted(
        kind, to_state, {BYTES: _base64, DATE: days_of, TIME: millis_of_day, DOUBLE: _double}, decimal_text
    )


def from_state(kind: SqlType) -> Convert:
    """Return the function that makes values of a type out of plain JSON."""
    return _converted(kind, from_state, {BYTES: base64.b64decode, DATE: date_of, TIME: time_of, DOUBLE: float}, Decimal)


def _converted(
    kind: SqlType, again: Callable[[SqlType], Convert], plain: dict[SqlType, Convert], exact: Convert
) -> Convert:
    of_leaf = exact if isinstance(kind, DecimalType) else plain.get(kind)
    inner = nested_conversion(kind, again) or of_leaf
    if inner is None:
        return lambda value: value
    return lambda value: None if value is None else inner(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _double(value: float) -> float | str:
    return value if value - value == 0 else double_text(value)  # JSON has no NaN and no infinity
