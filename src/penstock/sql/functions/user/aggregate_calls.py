"""Python classes as aggregates: their methods as steps over states that are plain JSON."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.sql.functions.aggregates.definition import AggregateSteps
from penstock.sql.functions.aggregates.states import from_state, to_state
from penstock.sql.functions.evaluation_errors import FunctionFailed
from penstock.sql.functions.patterns import Signature, match
from penstock.sql.functions.user.annotations import UnknownType, pattern_of
from penstock.sql.functions.user.calls import FunctionCall
from penstock.sql.functions.user.declarations import Declaration
from penstock.sql.functions.user.values import incoming, outgoing, shown
from penstock.sql.types import NULL, SqlType, SqlTypeError, SqlValueError
from penstock.sql.types.sql_type import is_open

__all__ = ["AggregateFactory"]

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class AggregateFactory:
    """The steps of a class for arguments of known types, and literals for its ``__init__``."""

    declaration: Declaration
    settings: Mapping[str, str]
    shows: bool

    def __call__(self, kinds: Sequence[SqlType], constants: Sequence[Any]) -> AggregateSteps:
        """Return the steps.

        Raises:
            SqlTypeError: ``__init__`` does not take the literals.
        """
        declared = self.declaration
        options = {"settings": self.settings} if declared.settings else {}
        try:
            instance = declared.target(*constants, **options)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise SqlTypeError(f"{declared.name} does not take ({shown(constants)}): {reason}") from error
        taken = declared.annotated[: declared.rows]
        call = FunctionCall(declared.name, instance.add, taken, declared.nulls, None, self.shows)
        kind = self._filled(kinds, None)
        keep, read = self._state(instance, kinds)
        add = _Step(call, keep, read)
        undo = None
        if callable(getattr(instance, "undo", None)):
            undo = _Step(replace(call, target=instance.undo, name=f"{declared.name} undo"), keep, read)
        plain = FunctionCall(declared.name, instance.merge, shows=self.shows, nulls=True)
        result = _ResultOfState(
            replace(plain, target=instance.result) if hasattr(instance, "result") else None, read, outgoing(kind)
        )
        initial = _Initial(replace(plain, target=instance.initialise), keep)
        return AggregateSteps(initial, add, _MergeStates(plain, keep, read), result, kind, undo)

    def _filled(self, kinds: Sequence[SqlType], pattern: SqlType | None) -> SqlType:
        """Return a pattern, by default the result's, with the types that the arguments decide."""
        for signature in self.declaration.signatures:
            result_type = signature.result if pattern is None else pattern
            rows = Signature(signature.name, signature.parameters[: self.declaration.rows], result_type)
            matched = match(rows, kinds, widen=True)
            if matched is not None:
                return matched.result
        return NULL

    def _state(self, instance: Any, kinds: Sequence[SqlType]) -> tuple[Convert | None, Convert | None]:
        """Return the functions that make states plain JSON and back; None where they are that already."""
        annotation = typing.get_type_hints(instance.initialise, include_extras=True).get("return")
        try:
            kind = self._filled(kinds, pattern_of(annotation))
        except UnknownType:
            return None, None
        if is_open(kind):
            return None, None
        out, keep, read, into = outgoing(kind), to_state(kind), from_state(kind), incoming(annotation)

        def written(state: Any) -> Any:
            return keep(out(state))

        def back(state: Any) -> Any:
            sql_value = read(state)
            return into(sql_value) if into else sql_value

        return written, back


@dataclass(slots=True)
class _Step:
    """``add`` or ``undo``: rows with a null that it does not want leave the state as it is."""

    call: FunctionCall
    keep: Convert | None
    read: Convert | None

    def __call__(self, state: Any, *values: Any) -> Any:
        if self.call.refuses(values):
            return state
        before = self.read(state) if self.read else state
        new_state = self.call.run(values, (before,))
        return _kept(self.call.name, self.keep, new_state)


@dataclass(slots=True)
class _Initial:
    call: FunctionCall
    keep: Convert | None

    def __call__(self) -> Any:
        return _kept(self.call.name, self.keep, self.call.run(()))


@dataclass(slots=True)
class _MergeStates:
    call: FunctionCall
    keep: Convert | None
    read: Convert | None

    def __call__(self, one: Any, two: Any) -> Any:
        states = [self.read(state) if self.read else state for state in (one, two)]
        return _kept(self.call.name, self.keep, self.call.run(states))


@dataclass(slots=True)
class _ResultOfState:
    call: FunctionCall | None
    read: Convert | None
    check: Convert

    def __call__(self, state: Any) -> Any:
        own_state = self.read(state) if self.read else state
        try:
            return self.check(own_state if self.call is None else self.call.run((own_state,)))
        except FunctionFailed:
            raise
        except SqlValueError as error:
            raise FunctionFailed(str(error)) from error


def _kept(name: str, keep: Convert | None, state: Any) -> Any:
    try:
        return keep(state) if keep else _json(state)
    except SqlValueError as error:
        raise FunctionFailed(f"the state of {name}: {error}") from error


def _json(state: Any) -> Any:
    """Return the state, if it is plain JSON."""
    waiting = [state]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += item
        elif isinstance(item, dict) and all(isinstance(key, str) for key in item):
            waiting += item.values()
        elif not (item is None or isinstance(item, bool | int | float | str)):
            raise SqlValueError(f"{shown([item])} is not plain JSON; annotate initialise() with the type of the state")
    return state
