"""Names that are others here: each raises an error that says what to write.

`JAVA_NAMES` has Kafka Streams' names that differ by more than snake_case: of the DSL, and of running, testing,
processing and querying (`kafka_streams`). `GUESSES` has what other classes and libraries call it (`guesses`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from inspect import getattr_static
from types import MappingProxyType
from typing import NoReturn, TypeVar

from penstock.base.java_names.guesses import GUESSED_CLASSES, GUESSES, STREAM_VERBS
from penstock.base.java_names.kafka_streams import CLASSES, DSL, NOTHING, RUNNING
from penstock.errors import JavaNameError, NoSuchMethodError

__all__ = ["JAVA_CLASSES", "JAVA_NAMES", "camel_case", "snake_case", "with_java_names", "with_java_names_of"]

T = TypeVar("T")


# Java's names -> ours, by class. Entries that begin with NOTHING have no counterpart; the rest is the reason.
JAVA_NAMES: Mapping[str, Mapping[str, str]] = MappingProxyType({**DSL, **RUNNING})

# Classes that `from penstock import ...` does not have -> what to write.
JAVA_CLASSES: Mapping[str, str] = MappingProxyType({**GUESSED_CLASSES, **CLASSES})

_STREAM = "KStream"
_VERBS: set[str] = set()  # of `KStream`, once that class is there
_WITHOUT: list[tuple[str, type, set[str]]] = []  # name in Java, class, and what it has or has a sentence for


class _OtherName:
    """A class attribute that raises an error when it is read."""

    __slots__ = ("_java", "_name", "_ours", "_owner")

    def __init__(self, owner: str, name: str, ours: str, *, java: bool) -> None:
        self._owner, self._name, self._ours, self._java = owner, name, ours, java

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        if self._java:
            raise JavaNameError(self._message(), hint="docs/java-to-python.md lists Java's methods and ours.")
        raise NoSuchMethodError(self._message(), hint="docs/reference/api/index.md lists the methods of each class.")

    def _message(self) -> str:
        if self._ours.startswith(NOTHING):
            return f"{self._owner} has no {self._name}, and there is no replacement: {self._ours.removeprefix(NOTHING)}"
        if self._ours.startswith(";"):
            return f"{self._owner} has no {self._name}{self._ours}"
        return f"{self._owner} has no {self._name}: it is {self._ours} here"


def with_java_names(cls: type[T]) -> type[T]:
    """Decorate a class so that Java's names of its methods, in camelCase and snake_case, raise JavaNameError.

    Names that are guessed raise NoSuchMethodError.
    """
    return _named_as(cls.__name__, cls, ())


def with_java_names_of(java: str, settings: Iterable[str] = ()) -> Callable[[type[T]], type[T]]:
    """Like `with_java_names`, for a class with another name in Java.

    Args:
        java: The Java class.
        settings: Names of settings that have a constant in Java: ``APPLICATION_ID_CONFIG``.
    """
    return lambda cls: _named_as(java, cls, settings)


def _named_as(java: str, cls: type[T], settings: Iterable[str]) -> type[T]:
    names: dict[str, str] = {}
    fields = set(getattr(cls, "__dataclass_fields__", ()))
    for ours in {*dir(cls), *fields}:
        if ours.startswith("_") or ours != ours.lower() or _is_other_name(cls, ours):
            continue
        names[camel_case(ours)] = ours
        if ours in fields or isinstance(getattr_static(cls, ours), property):
            names |= dict.fromkeys((f"get_{ours}", camel_case(f"get_{ours}")), ours)
    for setting in settings:
        constant = re.sub(r"\W", "_", setting).upper()
        names |= dict.fromkeys((f"{constant}_CONFIG", f"{constant}_CLASS_CONFIG"), f'"{setting}"')
    for theirs, ours in JAVA_NAMES.get(java, {}).items():
        names |= dict.fromkeys((theirs, snake_case(theirs)), ours)
    guesses = {name: ours for guess, ours in GUESSES.get(java, {}).items() for name in (guess, camel_case(guess))}
    have = {name for name in {*dir(cls), *fields} if not _is_other_name(cls, name)}
    for name, ours in {**guesses, **names}.items():
        if name not in have:
            setattr(cls, name, _OtherName(java, name, ours, java=name in names))
    _point_to_streams(java, cls, have, {*guesses, *names})
    if cls.__dir__ is object.__dir__:
        cls.__dir__ = _own_names  # type: ignore[method-assign, assignment]
    return cls


def _point_to_streams(java: str, cls: type, have: set[str], sentences: set[str]) -> None:
    """Name the way to `KStream` where another class is asked for one of its verbs, whichever is decorated first."""
    if java == _STREAM:
        _VERBS.update(name for name in have if not name.startswith("_"))
        lacking = _WITHOUT
    elif java in STREAM_VERBS:
        lacking = [(java, cls, have | sentences)]
        _WITHOUT.extend(lacking)
    else:
        return
    for owner, without, taken in lacking:
        for verb in _VERBS:
            for name in {verb, camel_case(verb)} - taken:
                sentence = STREAM_VERBS[owner].replace("{}", verb)
                setattr(without, name, _OtherName(owner, name, sentence, java=False))


def _is_other_name(cls: type, name: str) -> bool:
    """Return whether a name of a class is one that raises an error; each start asks for thousands of names."""
    return isinstance(next((vars(each)[name] for each in cls.__mro__ if name in vars(each)), None), _OtherName)


def _own_names(thing: object) -> Iterable[str]:
    """List the names for completion, without those that raise an error."""
    return [name for name in object.__dir__(thing) if not _is_other_name(type(thing), name)]


def camel_case(name: str) -> str:
    """Convert ``map_values`` to Java's form ``mapValues``."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def snake_case(name: str) -> str:
    """Convert ``mapValues`` to Python's form ``map_values``; keywords get an underscore: ``as_``."""
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower() if name != name.upper() else name
    return snake + "_" if snake in {"as", "with"} else snake
