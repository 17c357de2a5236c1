"""The functions that users have written, beside the built-in ones; loaded from modules, files, entry points.

Calls of users' functions and aggregates: values are converted on their way in and out.
"""

from __future__ import annotations

import dataclasses
import traceback
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from importlib.metadata import entry_points
from itertools import islice
from types import ModuleType
from typing import Any, get_args, get_origin

from penstock.base.terminal.human_numbers import with_article
from penstock.base.user_code import load_module
from penstock.errors import PenstockError, SqlFunctionError
from penstock.sql.functions.aggregates import (
    AggregateFunction,
    AggregateSteps,
    aggregate_functions,
    from_state,
    to_state,
)
from penstock.sql.functions.builtin import scalar_functions, table_functions
from penstock.sql.functions.evaluation_errors import FunctionFailed
from penstock.sql.functions.patterns import Signature, match
from penstock.sql.functions.registry import Overload, ScalarFunction
from penstock.sql.functions.user.declarations import (
    LISTS,
    MAPS,
    NOTE,
    Declaration,
    Taken,
    UnknownType,
    pattern_of,
    without_null,
)
from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    DecimalType,
    SqlType,
    SqlTypeError,
    SqlValueError,
)
from penstock.sql.types.conversions import cast_function, nested_conversion
from penstock.sql.types.numbers import INT_MAX, INT_MIN
from penstock.sql.types.sql_type import is_open

__all__ = ["ROWS_SHOWN", "UserFunctions", "incoming", "load_functions", "outgoing", "shown"]

Convert = Callable[[Any], Any]
WIDEST = DecimalType(1000, 500)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHOWN = 200  # characters of the arguments in a message
PLAIN: dict[SqlType, type] = {BOOLEAN: bool, STRING: str, TIME: time}


def shown(values: Iterable[Any]) -> str:
    """Return arguments as a message shows them, cut where they are long."""
    text = ", ".join(map(repr, values))
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def incoming(annotation: Any) -> Convert | None:
    """Return the function that makes a value of SQL what an annotation says; None where it is that already."""
    inner = _incoming(without_null(annotation))
    return None if inner is None else lambda value: None if value is None else inner(value)


def _incoming(annotation: Any) -> Convert | None:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _incoming(parts[0])
    if annotation is datetime:
        return lambda millis: datetime.fromtimestamp(millis / 1000, UTC)
    if origin in LISTS and parts and (item := incoming(parts[0])) is not None:
        return lambda values: [item(value) for value in values]
    if origin in MAPS and len(parts) == 2 and (entry := incoming(parts[1])) is not None:
        return lambda values: {key: entry(value) for key, value in values.items()}
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        hints = typing.get_type_hints(annotation)
        steps = [(name, incoming(hint)) for name, hint in hints.items()]

        def instance(row: Mapping[str, Any]) -> Any:
            values = {name: row.get(name.upper()) for name, _ in steps}
            return annotation(**{name: step(values[name]) if step else values[name] for name, step in steps})

        return instance
    return None


def outgoing(kind: SqlType) -> Convert:
    """Return the function that checks a result and makes it a value of a type of SQL.

    >>> outgoing(DecimalType(4, 2))(Decimal("1.005")), outgoing(DOUBLE)(2)
    (Decimal('1.01'), 2.0)
    """
    inner = _outgoing(kind)
    return lambda value: None if value is None else inner(value)


def _outgoing(kind: SqlType) -> Convert:
    nested = nested_conversion(
        kind,
        outgoing,
        elements=lambda values: _of(values, (list, tuple), kind),
        entries=lambda values: _of(values, dict, kind).items(),
        members=lambda value, names: _members(value, names, kind),
    )
    if nested is not None:
        return nested
    if isinstance(kind, DecimalType):
        return _decimal(kind)
    if kind in PLAIN:
        return lambda value: _of(value, PLAIN[kind], kind)
    rules: dict[SqlType, Convert] = {
        INTEGER: lambda value: _whole(value, kind, INT_MIN, INT_MAX),
        BIGINT: lambda value: _whole(value, kind, -(2**63), 2**63 - 1),
        DOUBLE: lambda value: float(_of(value, (int, float), kind, wrong=bool)),
        BYTES: lambda value: bytes(_of(value, (bytes, bytearray), kind)),
        DATE: lambda value: _of(value, date, kind, wrong=datetime),
        TIMESTAMP: _timestamp,
    }
    return rules.get(kind, lambda value: value)


def _of(value: Any, types: Any, kind: SqlType, wrong: Any = ()) -> Any:
    if not isinstance(value, types) or isinstance(value, wrong):
        raise SqlValueError(f"the result {shown([value])} is not {with_article(str(kind))}")
    return value


def _whole(value: Any, kind: SqlType, least: int, most: int) -> int:
    number: int = _of(value, int, kind, wrong=bool)
    if not least <= number <= most:
        raise SqlValueError(f"the result {number} is outside of {kind}")
    return number


def _decimal(kind: DecimalType) -> Convert:
    fit = cast_function(WIDEST, kind)
    return lambda value: fit(Decimal(_of(value, (int, Decimal), kind, wrong=bool)))


def _timestamp(value: Any) -> int:
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return int((moment - EPOCH).total_seconds() * 1000)
    return _whole(value, TIMESTAMP, -(2**63), 2**63 - 1)


def _members(value: Any, names: tuple[str, ...], kind: SqlType) -> list[Any]:
    """Return the values of the fields of a dataclass or a mapping, whatever the case of their names."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    row = _of(value, Mapping, kind)
    upper = {str(name).upper(): item for name, item in row.items()}
    return [row[name] if name in row else upper.get(name.upper()) for name in names]


MAX_ROWS = 1_000_000  # of a table function for one row


def arguments_of(taken: Sequence[Taken], count: int) -> list[Taken]:
    """Return the parameter of each argument: a variadic one takes all that the others leave."""
    parameters: list[Taken] = []
    extra = count - len(taken)
    for each in taken:
        parameters += [each] * (extra + 1) if each.variadic else [each]
    return parameters[:count]


@dataclass(slots=True)
class FunctionCall:
    """A Python function over values of SQL.

    Attributes:
        name: The name in SQL.
        target: The function.
        taken: Its annotated parameters; empty where all values go to it as they are.
        nulls: Whether it is called with nulls although no annotation says so.
        settings: What it takes as ``settings``; None if it has no such parameter.
        shows: Whether messages show the arguments.
        result: The type of the result; None leaves it as it is.
    """

    name: str
    target: Callable[..., Any]
    taken: tuple[Taken, ...] = ()
    nulls: bool = False
    settings: Mapping[str, str] | None = None
    shows: bool = True
    result: SqlType | None = None
    _steps: dict[int, list[Convert | None] | None] | None = None
    _check: Convert | None = None

    def __call__(self, *values: Any) -> Any:
        """Return the result; null where an argument is null that must not be.

        Raises:
            SqlValueError: The function has raised, or returned what is not a value of its type.
        """
        if self.refuses(values):
            return None
        result = self.run(values)
        if self._check is None and self.result is not None:
            self._check = outgoing(self.result)
        try:
            return result if self._check is None else self._check(result)
        except SqlValueError as error:
            raise FunctionFailed(f"{self.name}({self.arguments(values)}): {error}") from error

    def refuses(self, values: Sequence[Any]) -> bool:
        """Return whether null among the values makes the result null."""
        if self.nulls or not any(value is None for value in values):
            return False
        pairs = zip(values, arguments_of(self.taken, len(values)), strict=False)
        return not self.taken or any(value is None and not each.nullable for value, each in pairs)

    def run(self, values: Sequence[Any], before: tuple[Any, ...] = ()) -> Any:
        """Call the function, with what stands before the arguments; its result is not checked."""
        steps = self._conversions(len(values))
        taken = values if steps is None else [s(v) if s else v for s, v in zip(steps, values, strict=True)]
        try:
            if self.settings is None:
                return self.target(*before, *taken)
            return self.target(*before, *taken, settings=self.settings)
        except Exception as error:
            raise FunctionFailed(self.raised(error, values)) from error

    def raised(self, error: BaseException, values: Sequence[Any]) -> str:
        """Return the message for an exception of the function."""
        frames = traceback.extract_tb(error.__traceback__)
        at = f" at {frames[-1].filename}:{frames[-1].lineno}" if len(frames) > 1 else ""
        return f"{self.name}({self.arguments(values)}) raised {type(error).__name__}: {str(error)[:500]}{at}"

    def arguments(self, values: Sequence[Any]) -> str:
        """Return the arguments as a message shows them."""
        return shown(values) if self.shows else "..."

    def _conversions(self, count: int) -> list[Convert | None] | None:
        if not self.taken:
            return None
        if self._steps is None:
            self._steps = {}
        if count not in self._steps:
            steps = [incoming(each.annotation) for each in arguments_of(self.taken, count)]
            self._steps[count] = steps if any(steps) else None
        return self._steps[count]

    def __reduce__(self) -> Any:
        return FunctionCall, (self.name, self.target, self.taken, self.nulls, self.settings, self.shows, self.result)


@dataclass(slots=True)
class CallRows:
    """A table function over values of SQL: the list of its rows."""

    call: FunctionCall
    row: SqlType

    def __call__(self, *values: Any) -> list[Any]:
        if self.call.refuses(values):
            return []
        check = outgoing(self.row)
        try:
            rows = list(islice(self.call.run(values) or (), MAX_ROWS + 1))
            if len(rows) <= MAX_ROWS:
                return [check(row) for row in rows]
        except FunctionFailed:
            raise
        except SqlValueError as error:
            raise FunctionFailed(f"{self.call.name}({self.call.arguments(values)}): {error}") from error
        except Exception as error:
            raise FunctionFailed(self.call.raised(error, values)) from error
        raise FunctionFailed(f"{self.call.name}({self.call.arguments(values)}) makes more than {MAX_ROWS} rows")


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


PREFIX = "ksql.functions."
ROWS_SHOWN = "ksql.logging.processing.rows.include"  # of ksqlDB; false keeps arguments out of the messages
FAMILY = "user"


@dataclass(slots=True)
class UserFunctions:
    """Functions that decorators have declared, by name.

    >>> from penstock.sql.functions import udf
    >>> @udf
    ... def twice(number: int) -> int:
    ...     return 2 * number
    >>> functions = UserFunctions()
    >>> functions.add(twice)
    ('TWICE',)
    >>> [function.name for function in functions.scalars({})]
    ['TWICE']
    """

    declared: dict[str, tuple[Declaration, ...]] = field(default_factory=dict)

    def copy(self) -> UserFunctions:
        """Return a copy that can be added to."""
        return UserFunctions(dict(self.declared))

    def add(self, *objects: Any) -> tuple[str, ...]:
        """Add decorated functions and classes, and those of modules; the result is their names.

        A function that was declared at the same place before is replaced, so that a module can be loaded again.

        Raises:
            SqlFunctionError: An object has no declaration, or a name is that of a function of another kind.
        """
        declarations: list[Declaration] = []
        for each in objects:
            notes = _notes(each)
            if not notes:
                what = getattr(each, "__name__", repr(each))
                raise SqlFunctionError(
                    f"{what} declares no function of SQL", hint="Decorate functions with @udf, @udaf or @udtf."
                )
            declarations += notes
        changed = dict(self.declared)
        fresh = {(note.name, _identity(note)) for note in declarations}
        for name in {note.name for note in declarations}:
            changed[name] = tuple(old for old in changed.get(name, ()) if (name, _identity(old)) not in fresh)
        for note in declarations:
            _check(note, changed[note.name])
            changed[note.name] = (*changed[note.name], note)
        self.declared = changed
        return tuple(sorted({note.name for note in declarations}))

    def scalars(self, settings: Mapping[str, str]) -> list[ScalarFunction]:
        """Return the scalar functions with their settings."""
        return [self._scalar(name, notes, settings) for name, notes in self._of("scalar")]

    def tables(self, settings: Mapping[str, str]) -> list[ScalarFunction]:
        """Return the table functions with their settings."""
        return [self._scalar(name, notes, settings) for name, notes in self._of("table")]

    def aggregates(self, settings: Mapping[str, str]) -> list[AggregateFunction]:
        """Return the aggregate functions with their settings."""
        functions = []
        for name, notes in self._of("aggregate"):
            overloads = [_aggregate(note, _settings(name, settings), _shows(settings)) for note in notes]
            functions.append(replace(overloads[0], others=tuple(overloads[1:])))
        return functions

    def _of(self, kind: str) -> Iterable[tuple[str, tuple[Declaration, ...]]]:
        return ((name, notes) for name, notes in sorted(self.declared.items()) if notes and notes[0].kind == kind)

    def _scalar(self, name: str, notes: Sequence[Declaration], settings: Mapping[str, str]) -> ScalarFunction:
        own, shows = _settings(name, settings), _shows(settings)
        overloads = tuple(_overload(note, signature, own, shows) for note in notes for signature in note.signatures)
        about = notes[0].about
        return ScalarFunction(name, FAMILY, about.description, (), (), overloads, about)


def _identity(note: Declaration) -> tuple[str, str, tuple[str, ...]]:
    target = note.target
    return target.__module__, target.__qualname__, tuple(map(str, note.signatures))


def _notes(target: Any) -> list[Declaration]:
    if isinstance(target, ModuleType):
        notes = [note for each in vars(target).values() if not isinstance(each, ModuleType) for note in _notes(each)]
        return list({id(note): note for note in notes}.values())
    try:
        own = object.__getattribute__(target, "__dict__")
    except AttributeError:
        return []
    return list(own.get(NOTE, ()))


def _check(note: Declaration, others: Sequence[Declaration]) -> None:
    builtin = scalar_functions().get(note.name) or table_functions().get(note.name)
    if builtin is not None or aggregate_functions().get(note.name) is not None:
        raise SqlFunctionError(
            f"{note.name} ({note.about.origin}) has the name of a built-in function",
            hint="Give it another one: @udf(name='...').",
        )
    if others and others[0].kind != note.kind:
        raise SqlFunctionError(
            f"{note.name} ({note.about.origin}) is declared as {note.kind} function, and as {others[0].kind} function "
            f"at {others[0].about.origin}"
        )


def _settings(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a function: those of all functions, then its own, without their prefixes."""
    own_settings = {}
    for scope in ("_global_", name.lower()):
        before = f"{PREFIX}{scope}."
        own_settings.update(
            {key[len(before) :]: value for key, value in settings.items() if key.lower().startswith(before)}
        )
    return own_settings


def _shows(settings: Mapping[str, str]) -> bool:
    return settings.get(ROWS_SHOWN, "true").lower() != "false"


def _overload(note: Declaration, signature: Signature, settings: Mapping[str, str], shows: bool) -> Overload:  # noqa: FBT001
    own_settings = settings if note.settings else None
    call = FunctionCall(note.name, note.target, note.annotated, note.nulls, own_settings, shows)
    return Overload((signature,), _Checked(note, call), nulls=True, returns=_returned(note, signature), by_result=True)


def _returned(note: Declaration, signature: Signature) -> Callable[[Sequence[SqlType]], SqlType] | None:
    rule = note.returns
    if rule is None:
        return None

    def returned(kinds: Sequence[SqlType]) -> SqlType:
        returned_type = rule(kinds)
        return (
            returned_type
            if isinstance(returned_type, SqlType)
            else Signature.parse(f"{signature.name}() {returned_type}").result
        )

    return returned


@dataclass(frozen=True, slots=True)
class _Checked:
    """The call of a function for a type of its result, which is checked."""

    note: Declaration
    call: FunctionCall

    def __call__(self, result: SqlType) -> Callable[..., Any]:
        return CallRows(self.call, result) if self.note.kind == "table" else replace(self.call, result=result)


def _aggregate(note: Declaration, settings: Mapping[str, str], shows: bool) -> AggregateFunction:  # noqa: FBT001
    factory = AggregateFactory(note, settings, shows)
    constants = tuple(max(0, len(signature.parameters) - note.rows) for signature in note.signatures)
    undoes = callable(getattr(note.target, "undo", None))
    return AggregateFunction(
        note.name, note.about.description, note.signatures, constants, factory, undoes, about=note.about
    )


ENTRY_POINTS = "penstock.sql.functions"


def load_functions(*places: str, installed: bool = False) -> UserFunctions:
    """Load the functions of modules and files.

    Args:
        places: Names of modules (``shop.functions``) or paths of files (``functions.py``).
        installed: Whether to load those of installed packages too: modules, functions or classes that are entry points
            of the group ``penstock.sql.functions``.

    Raises:
        PenstockError: A module cannot be loaded, or a function in it is none of SQL.
    """
    functions = UserFunctions()
    for module_or_file in places:
        functions.add(load_module(module_or_file))
    if installed:
        for point in entry_points(group=ENTRY_POINTS):
            functions.add(_loaded(point))
    return functions


def _loaded(point: Any) -> Any:
    try:
        return point.load()
    except PenstockError:
        raise
    except Exception as error:
        raise SqlFunctionError(
            f"the entry point {point.name} = {point.value} of {ENTRY_POINTS} cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error
