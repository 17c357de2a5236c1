"""The functions that users have written, beside the built-in ones; loaded from modules, files, entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from penstock.base.user_code import load_module
from penstock.errors import PenstockError, SqlFunctionError
from penstock.sql.functions.aggregates.builtin import aggregate_functions
from penstock.sql.functions.aggregates.definition import AggregateFunction
from penstock.sql.functions.builtin import scalar_functions, table_functions
from penstock.sql.functions.patterns import Signature
from penstock.sql.functions.registry import Overload, ScalarFunction
from penstock.sql.functions.user.calls import AggregateFactory, CallRows, FunctionCall
from penstock.sql.functions.user.declarations import NOTE, Declaration
from penstock.sql.types import SqlType

__all__ = ["ROWS_SHOWN", "UserFunctions", "load_functions"]

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
