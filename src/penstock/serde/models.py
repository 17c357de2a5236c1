"""Python types as values: dataclasses, pydantic's models, and what is made of them, as JSON.

A type is compiled to a tree of readers and writers when the serde is made, on the driver: a worker that gets the type
by value cannot resolve its annotations any more.
"""

from __future__ import annotations

import base64
import dataclasses
import threading
import types
import typing
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, NoReturn
from uuid import UUID

import numpy as np

from penstock.base.durations import timedelta_of, timedelta_text
from penstock.base.escapes import show
from penstock.base.late_polars import pl
from penstock.errors import ConfigError

__all__ = [
    "MisfitError",
    "RecordNode",
    "TypeCodec",
    "compiled",
    "documents",
    "has_fields",
    "holds_decimals",
    "is_model",
    "model_name",
    "uses_pydantic",
]

_MISSING_NAME = 'A field of another name in JSON: field(metadata={"name": "userId"}).'
_ALIASES: Any = getattr(typing, "TypeAliasType", ())  # of `type Name = ...`, from Python 3.12 on
_MOST_DIGITS = 4300  # of an integer, as many as Python itself reads from text
_FIELDS_OF_CLASS = threading.RLock()
_SCALARS: dict[Any, str] = {str: "String", int: "Int64", float: "Float64", bool: "Boolean"}  # Polars' names


class MisfitError(ValueError):
    """A value that does not fit its type; ``path`` leads to it from the outside, as ``lines[2].price``."""

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.path = path

    def under(self, outer: str) -> MisfitError:
        """Return the same misfit as part of a field, or of an item such as ``[2]``."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        return MisfitError(self.text, f"{outer}{joint}{self.path}")

    def __str__(self) -> str:
        return f"field {self.path!r} {self.text}" if self.path else f"it {self.text}"


def unlike(expected: str, value: object) -> NoReturn:
    raise MisfitError(f"is {type(value).__name__} {show(value, 60)}, not {expected}")


class TypeCodec:
    """The reader and writer of one type; ``read`` takes what Python's json module makes of the text."""

    column_type: Any = None  # the Polars type of what is written; None: it has no single one
    is_optional = False

    def read(self, document: Any) -> Any:
        """Return the value of a JSON document; raise MisfitError if it is none of the type."""
        raise NotImplementedError

    def write(self, value: Any) -> Any:
        """Return the JSON document of a value; raise MisfitError if it is none of the type."""
        raise NotImplementedError

    def schema(self, above: tuple[Any, ...] = ()) -> dict[str, Any]:
        """Return the JSON Schema; ``above`` are the classes that it stands in."""
        raise NotImplementedError


class _Plain(TypeCodec):
    """Text, numbers and booleans."""

    def __init__(self, kind: type, words: str, json_type: str) -> None:
        self.kind, self.words, self.json_type = kind, words, json_type

    @property
    def column_type(self) -> Any:
        """The Polars type."""
        return getattr(pl, _SCALARS[self.kind])

    def read(self, document: Any) -> Any:
        kind = self.kind
        if type(document) is kind:
            return document
        if kind is float and type(document) in (int, Decimal):
            return self._float(document)
        if kind is int and _is_whole(document):
            return int(document)
        unlike(self.words, document)

    def _float(self, number: Any) -> float:
        try:
            return float(number)
        except OverflowError:
            unlike(self.words, number)

    def write(self, value: Any) -> Any:
        kind = self.kind
        if type(value) is kind:
            return value
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return kind(value)
        if kind is float and type(value) is int:
            return self._float(value)
        unlike(self.words, value)

    def schema(self, above: tuple[Any, ...] = ()) -> dict[str, Any]:  # noqa: ARG002
        return {"type": self.json_type}


def _is_whole(number: Any) -> bool:
    """Return whether a number with a fraction or an exponent is an integer, and not one of millions of digits."""
    if type(number) is Decimal:
        return number.is_finite() and number.adjusted() < _MOST_DIGITS and number == number.to_integral_value()
    return type(number) is float and number.is_integer()


class _Text(TypeCodec):
    """A type that JSON has as text."""

    @property
    def column_type(self) -> Any:
        """The Polars type."""
        return pl.String

    def __init__(
        self, kind: type, words: str, read: Callable[[str], Any], write: Callable[[Any], str], facts: dict[str, Any]
    ) -> None:
        self.kind, self.words, self.facts = kind, words, facts
        self.of_text, self.to_text = read, write

    def read(self, document: Any) -> Any:
        if self.kind is Decimal and type(document) in (int, Decimal):
            return Decimal(document)
        if type(document) is str:
            try:
                return self.of_text(document)
            except (ValueError, InvalidOperation, OverflowError):
                pass
        unlike(self.words, document)

    def write(self, value: Any) -> Any:
        if not isinstance(value, self.kind) or (self.kind is date and isinstance(value, datetime)):
            unlike(self.words, value)
        return self.to_text(value)

    def schema(self, above: tuple[Any, ...] = ()) -> dict[str, Any]:  # noqa: ARG002
        return {"type": "string", **self.facts}


def _base64_of(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _base64_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _leaf(kind: Any) -> TypeCodec | None:
    """Return the node of a type without parts; None if it is none of these."""
    if kind in (str, int, float, bool):
        words = {str: "text", int: "an integer", float: "a number", bool: "true or false"}
        names = {str: "string", int: "integer", float: "number", bool: "boolean"}
        return _Plain(kind, words[kind], names[kind])
    texts: dict[Any, tuple[str, Callable[[str], Any], Callable[[Any], str], dict[str, Any]]] = {
        datetime: ("a date and time (ISO 8601)", datetime.fromisoformat, datetime.isoformat, {"format": "date-time"}),
        date: ("a date (ISO 8601)", date.fromisoformat, date.isoformat, {"format": "date"}),
        time: ("a time (ISO 8601)", time.fromisoformat, time.isoformat, {"format": "time"}),
        timedelta: ('a duration (ISO 8601, "PT1H")', timedelta_of, timedelta_text, {"format": "duration"}),
        Decimal: ("a decimal number", Decimal, str, {}),
        UUID: ("a UUID", UUID, str, {"format": "uuid"}),
        bytes: ("bytes (in base64)", _base64_of, _base64_text, {"contentEncoding": "base64"}),
    }
    return _Text(kind, *texts[kind]) if isinstance(kind, type) and kind in texts else None


class _Anything(TypeCodec):
    """Any JSON value."""

    def read(self, document: Any) -> Any:
        """Return the document; its numbers are floats even if those of other fields are read as decimals."""
        if type(document) is dict:
            return {name: self.read(item) for name, item in document.items()}
        if type(document) is list:
            return [self.read(item) for item in document]
        return float(document) if type(document) is Decimal else document

    def write(self, value: Any) -> Any:
        return value

    def schema(self, above: tuple[Any, ...] = ()) -> dict[str, Any]:  # noqa: ARG002
        return {}


class _Choice(TypeCodec):
    """An Enum by its values, a Literal, or None."""

    def __init__(self, members: Mapping[Any, Any], words: str) -> None:
        self.members = {(type(value), value): member for value, member in members.items()}
        self.values = {member: value for value, member in members.items()}
        self.words = words
        kinds = {type(value) for value in members} - {type(None)}
        scalar = _SCALARS.get(kinds.pop()) if len(kinds) == 1 else None
        self.column_type = None if scalar is None else getattr(pl, scalar)
        self.is_optional = None in members

    def read(self, document: Any) -> Any:
        if type(document) is Decimal:
            document = float(document)
        key = type(document), document
        try:
            return self.members[key]
        except (KeyError, TypeError):
            unlike(self.words, document)

    def write(self, value: Any) -> Any:
        try:
            return self.values[value]
        except (KeyError, TypeError):
            unlike(self.words, value)

    def schema(self, above: tuple[Any, ...] = ()) -> dict[str, Any]:  # noqa: ARG002
        values = list(self.values.values())
        return {"type": "null"} if values == [None] else {"enum": values}


class _Items(TypeCodec):
    """Lists, sets and tuples of any length."""

    def __init__(self, kind: type, inner: TypeCodec) -> None:
        self.kind, self.inner = kind, inner

    @property
    def column_type(self) -> Any:
        return None if self.inner.column_type is None else pl.List(self.inner.column_type)

    def read(self, document: Any) -> Any:
        if type(document) is not list:
            unlike("a list", document)
        items = _each(self.inner.read, document)
        try:
            return items if self.kind is list else self.kind(items)
        except TypeError as error:  # items that cannot be in a set
            raise MisfitError(f"is no {self.kind.__name__}: {error}") from None

    def write(self, value: Any) -> Any:
        kinds: Any = AbstractSet if issubclass(self.kind, set | frozenset) else (list, tuple)
        if not isinstance(value, kinds):
            unlike(f"a {self.kind.__name__}", value)
        if not isinstance(value, AbstractSet):
            return _each(self.inner.write, value)
        # Equal sets have equal bytes: they may be in keys.
        return sorted(_each(self.inner.write, list(value)), key=repr)

    def schema(self, above: tuple[Any, ...] = ()) -> dict[str, Any]:
        unique = {"uniqueItems": True} if issubclass(self.kind, set | frozenset) else {}
        return {"type": "array", "items": self.inner.schema(above), **unique}


def _each(convert: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    converted: list[Any] = []
    try:
        for item in items:
            converted.append(convert(item))  # noqa: PERF401 - its length says which item failed
    except MisfitError as misfit:
        raise misfit.under(f"[{len(converted)}]") from None
    return converted


class _Tuple(TypeCodec):
    """Tuples with a type for each place."""

    def __init__(self, inner: Sequence[TypeCodec]) -> None:
        self.inner = inner

    def read(self, document: Any) -> Any:
        return tuple(self._converted(document, "read"))

    def write(self, value: Any) -> Any:
        return self._converted(value, "write")

    def _converted(self, items: Any, verb: str) -> list[Any]:
        if not isinstance(items, list | tuple) or len(items) != len(self.inner):
            unlike(f"a list of {len(self.inner)} items", items)
        converters = iter([getattr(node, verb) for node in self.inner])

        def convert(item: Any) -> Any:
            return next(converters)(item)

        return _each(convert, items)

    def schema(self, above: tuple[Any, ...] = ()) -> dict[str, Any]:
        items = [node.schema(above) for node in self.inner]
        return {"type": "array", "items": items, "minItems": len(items), "maxItems": len(items)}


def _key_text(document: Any) -> str:
    """Return a scalar as the name of a field, which is text in JSON."""
    return ("true" if document else "false") if type(document) is bool else str(document)


class _Mapping(TypeCodec):
    """Dicts; their keys are text in JSON."""

    def __init__(self, key: TypeCodec, value: TypeCodec) -> None:
        self.key, self.value = key, value
        self._names: dict[str, Any] | None = None  # the keys of a type that has few, by their text
        if isinstance(key, _Choice):
            self._names = {_key_text(each): each for each in key.values.values()}
        elif isinstance(key, _Plain) and key.kind is bool:
            self._names = {_key_text(each): each for each in (True, False)}

    def read(self, document: Any) -> Any:
        if type(document) is not dict:
            unlike("an object", document)
        pairs = {}
        for name, item in document.items():
            try:
                pairs[self._key_of(name)] = self.value.read(item)
            except MisfitError as misfit:
                raise misfit.under(f"[{name!r}]") from None
        return pairs

    def _key_of(self, name: str) -> Any:
        if self._names is not None:
            return self.key.read(self._names.get(name, name))
        if isinstance(self.key, _Plain) and self.key.kind in (int, float):
            try:
                return self.key.kind(name)
            except ValueError:
                unlike(self.key.words, name)
        return self.key.read(name)

    def write(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            unlike("a dict", value)
        pairs = {}
        for key, item in value.items():
            try:
                pairs[_key_text(self.key.write(key))] = self.value.write(item)
            except MisfitError as misfit:
                raise misfit.under(f"[{key!r}]") from None
        return pairs

    def schema(self, above: tuple[Any, ...] = ()) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.value.schema(above)}


class _Union(TypeCodec):
    """One of several types: the first that fits; of those with fields, the one that has most of the document's."""

    def __init__(self, members: Sequence[TypeCodec]) -> None:
        self.members = members
        self.is_optional = any(isinstance(member, _Choice) and None in member.values for member in members)
        self.others = [each for each in members if not (isinstance(each, _Choice) and list(each.values) == [None])]

    @property
    def column_type(self) -> Any:
        return self.others[0].column_type if len(self.others) == 1 else None

    def read(self, document: Any) -> Any:
        if document is None and self.is_optional:
            return None
        if len(self.others) == 1:
            return self.others[0].read(document)
        ranked = self.others
        if type(document) is dict:
            names = document.keys()
            ranked = sorted(ranked, key=lambda node: -len(names & node.names) if isinstance(node, RecordNode) else 0)
        elif type(document) is int:  # a float takes it, too
            ranked = sorted(ranked, key=lambda node: not (isinstance(node, _Plain) and node.kind is int))
        return self._first(ranked, "read", document)

    def write(self, value: Any) -> Any:
        if value is None and self.is_optional:
            return None
        if len(self.others) == 1:
            return self.others[0].write(value)
        exact = [node for node in self.others if getattr(node, "kind", None) is type(value)]
        return self._first(exact or self.others, "write", value)

    def _first(self, nodes: Sequence[TypeCodec], verb: str, item: Any) -> Any:
        misfits = []
        for node in nodes:
            try:
                return getattr(node, verb)(item)
            except MisfitError as misfit:
                misfits.append(misfit)
        raise misfits[0] if misfits[0].path else MisfitError(" and ".join(each.text for each in misfits))

    def schema(self, above: tuple[Any, ...] = ()) -> dict[str, Any]:
        kind = "oneOf" if self.is_optional and len(self.others) == 1 else "anyOf"
        members = [{"type": "null"}] if self.is_optional else []
        return {kind: members + [member.schema(above) for member in self.others]}


@dataclasses.dataclass(slots=True)
class _Field:
    name: str
    wire: str
    node: TypeCodec
    has_default: bool = False
    is_argument: bool = True


def _exact_type(node: TypeCodec) -> Any:
    """Return the type whose values are the same in Python and in JSON; a class that no value has if there is none."""
    return node.kind if isinstance(node, _Plain) else _Plain


class RecordNode(TypeCodec):
    """A class with fields: a dataclass, a TypedDict, or a model of pydantic (of which only the shape is used)."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.is_dict = typing.is_typeddict(kind)
        self.fields: list[_Field] = []
        self._nested = False  # under the lock

    @property
    def names(self) -> AbstractSet[str]:
        """The names of the fields in JSON."""
        return {field.wire for field in self.fields}

    @cached_property
    def _readers(self) -> list[tuple[str, str, Any, Callable[[Any], Any]]]:
        """Of each field its name, that in JSON, the type that needs no conversion, and the conversion."""
        arguments = [field for field in self.fields if field.is_argument]
        return [(field.name, field.wire, _exact_type(field.node), field.node.read) for field in arguments]

    @cached_property
    def _writers(self) -> list[tuple[str, str, Any, Callable[[Any], Any]]]:
        return [(field.name, field.wire, _exact_type(field.node), field.node.write) for field in self.fields]

    def __getstate__(self) -> dict[str, Any]:
        return {name: fact for name, fact in vars(self).items() if name not in {"_readers", "_writers"}}

    @property
    def column_type(self) -> Any:
        with _FIELDS_OF_CLASS:
            if self._nested:  # a type that holds itself has no column
                return None
            self._nested = True
            try:
                types_ = {field.wire: field.node.column_type for field in self.fields}
            finally:
                self._nested = False
        typed_fields = {name: kind for name, kind in types_.items() if kind is not None}
        return pl.Struct(typed_fields) if typed_fields else None

    def read(self, document: Any) -> Any:
        if type(document) is not dict:
            unlike(f"an object with the fields of {model_name(self.kind)}", document)
        arguments = {}
        wire = ""
        try:
            for name, wire, exact, read in self._readers:
                if wire in document:
                    item = document[wire]
                    arguments[name] = item if type(item) is exact else read(item)
            if len(arguments) != len(self._readers):
                for field in self.fields:
                    wire = field.wire
                    if not field.has_default and wire not in document:
                        if not field.node.is_optional:
                            raise MisfitError("is missing")  # noqa: TRY301 - it gets its path below
                        arguments[field.name] = None
        except MisfitError as misfit:
            raise misfit.under(wire) from None
        if self.is_dict:
            return arguments
        try:
            return self.kind(**arguments)
        except Exception as error:  # what __post_init__ raises is the user's own check
            raise MisfitError(f"is no {model_name(self.kind)}: {type(error).__name__}: {error}") from error

    def write(self, value: Any) -> Any:
        if self.is_dict:
            return self._write_dict(value)
        if type(value) is not self.kind and not isinstance(value, self.kind):
            if not isinstance(value, dict):
                unlike(model_name(self.kind), value)
            value = self.read(value)  # what an expression made
        document = {}
        wire = ""
        try:
            for name, wire, exact, write in self._writers:
                item = getattr(value, name)
                document[wire] = item if type(item) is exact else write(item)
        except MisfitError as misfit:
            raise misfit.under(wire) from None
        return document

    def _write_dict(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            unlike(f"a dict with the fields of {model_name(self.kind)}", value)
        document = {}
        for field in self.fields:
            try:
                if field.name in value:
                    document[field.wire] = field.node.write(value[field.name])
                elif not field.has_default:
                    raise MisfitError("is missing")  # noqa: TRY301 - it gets its path below
            except MisfitError as misfit:
                raise misfit.under(field.wire) from None
        return document

    def schema(self, above: tuple[Any, ...] = ()) -> dict[str, Any]:
        if self.kind in above:
            if self.kind is above[0]:
                return {"$ref": "#"}
            raise ConfigError(
                f"{model_name(self.kind)} holds itself, within {model_name(above[0])}: that has no JSON Schema here",
                hint="Give the schema itself: Serdes.json_schema(schema).",
            )
        within = (*above, self.kind)
        return {
            "type": "object",
            "title": model_name(self.kind),
            "properties": {field.wire: field.node.schema(within) for field in self.fields},
            "required": [f.wire for f in self.fields if not f.has_default and not f.node.is_optional],
            "additionalProperties": False,
        }


def is_model(kind: Any) -> bool:
    """Return whether a type is one whose values are written as JSON by its annotations.

    >>> is_model(list[int]), is_model(int), is_model(int | None)
    (True, False, True)
    """
    if isinstance(kind, type) and not isinstance(kind, types.GenericAlias):
        return (
            dataclasses.is_dataclass(kind)
            or _is_pydantic(kind)
            or typing.is_typeddict(kind)
            or issubclass(kind, Enum)
            or kind in (datetime, date, time, timedelta, Decimal)
        )
    return typing.get_origin(kind) is not None or isinstance(kind, _ALIASES)


def has_fields(kind: type) -> bool:
    """Return whether a class is a dataclass or a model of pydantic."""
    return dataclasses.is_dataclass(kind) or _is_pydantic(kind)


def documents(kind: type, items: Sequence[Any]) -> list[Any]:
    """Return objects of a class with fields as what their JSON text holds; None stays None."""
    if hasattr(kind, "model_dump"):
        return [item if item is None else item.model_dump(mode="json", by_alias=True) for item in items]
    write = compiled(kind).write
    return [item if item is None else write(item) for item in items]


def model_name(kind: Any) -> str:
    """Return the name of a type in messages and plans; that of a class is without its module."""
    if isinstance(kind, type) and not isinstance(kind, types.GenericAlias):
        return kind.__qualname__.rpartition("<locals>.")[2]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return "|".join("None" if each is type(None) else model_name(each) for each in arguments)
    if origin is typing.Annotated:
        return model_name(arguments[0])
    if origin is None or origin is typing.Literal:
        return str(kind).removeprefix("typing.")
    return f"{model_name(origin)}[{','.join('...' if each is ... else model_name(each) for each in arguments)}]"


def _is_pydantic(kind: Any) -> bool:
    """Return whether a class is pydantic's; pydantic is not imported for that."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


def uses_pydantic(kind: Any) -> bool:
    """Return whether a type is, or holds, a class of pydantic, so that pydantic reads and writes it as a whole."""
    left, seen = [kind], set()
    while left:
        each = left.pop()
        if isinstance(each, _ALIASES):
            each = each.__value__
        if id(each) in seen:
            continue
        seen.add(id(each))
        if _is_pydantic(each):
            return True
        left += typing.get_args(each)
        origin = typing.get_origin(each) or each
        if isinstance(origin, type) and (dataclasses.is_dataclass(origin) or typing.is_typeddict(origin)):
            left += [origin, *_hints(origin).values()] if origin is not each else _hints(origin).values()
    return False


def compiled(kind: Any) -> TypeCodec:
    """Return the node of a type.

    Raises:
        ConfigError: Some part of the type has no JSON form.
    """
    # Only classes are remembered: `str | date` equals `date | str`, which reads otherwise, and some types have no hash.
    if isinstance(kind, type) and not isinstance(kind, types.GenericAlias):
        return _compiled_class(kind)
    return _compiled(kind)


def _compiled(kind: Any) -> TypeCodec:
    try:
        return _Compiler(lenient=uses_pydantic(kind)).node(kind, model_name(kind), {})
    except RecursionError:
        raise ConfigError(
            f"{model_name(kind)} holds itself with ever other arguments", hint="Give the inner type the same arguments."
        ) from None


_compiled_class = lru_cache(maxsize=1024)(_compiled)


def holds_decimals(node: TypeCodec) -> bool:
    """Return whether some part is a Decimal: then numbers are read as they stand in the text."""
    left: list[Any] = [node]
    seen = set()
    while left:
        part = left.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, _Text) and part.kind is Decimal:
            return True
        if isinstance(part, list | tuple):
            left += part
        elif isinstance(part, _Field):
            left.append(part.node)
        elif isinstance(part, TypeCodec):
            left += vars(part).values()
    return False


def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"the annotations of {model_name(kind)} cannot be resolved: {error}",
            hint="Define the types of its fields at the top of a module, not inside a function or under TYPE_CHECKING.",
        ) from error


class _Compiler:
    def __init__(self, *, lenient: bool) -> None:
        self._lenient = lenient  # pydantic reads and writes; types that it alone knows are anything
        self._records: dict[Any, tuple[RecordNode, Any]] = {}

    def node(self, kind: Any, where: str, variables: Mapping[Any, Any]) -> TypeCodec:
        kind = variables.get(kind, kind) if isinstance(kind, typing.TypeVar) else kind
        while True:
            if isinstance(kind, typing.NewType):
                kind = kind.__supertype__
            elif isinstance(kind, _ALIASES):
                kind = kind.__value__
            elif typing.get_origin(kind) in (typing.Annotated, typing.Required, typing.NotRequired, typing.Final):
                kind = typing.get_args(kind)[0]
            else:
                break
        if kind is None or kind is type(None):
            return _Choice({None: None}, "null")
        if kind in (Any, object):
            return _Anything()
        leaf = _leaf(kind)
        if leaf is not None:
            return leaf
        if isinstance(kind, type) and issubclass(kind, Enum):
            return self._choice(kind, list(kind), where)
        return self._composed(kind, where, variables)

    def _choice(self, kind: Any, members: Sequence[Any], where: str) -> TypeCodec:
        values = [member.value if isinstance(member, Enum) else member for member in members]
        if all(type(value) in (str, int, float, bool, type(None)) for value in values):
            return _Choice(dict(zip(values, members, strict=True)), f"one of {', '.join(map(repr, values))}")
        if self._lenient:
            return _Anything()
        raise ConfigError(
            f"{where} has the type {kind!r}, whose values are not all texts, numbers or booleans",
            hint="Give the members such values.",
        )

    def _key(self, kind: Any, where: str, variables: Mapping[Any, Any]) -> TypeCodec:
        key = self.node(kind, where, variables)
        if isinstance(key, _Anything):
            return self.node(str, where, variables)
        is_scalar = isinstance(key, _Plain | _Text) or (isinstance(key, _Choice) and not key.is_optional)
        if not is_scalar and not self._lenient:
            raise ConfigError(
                f"{where} is a dict whose keys are {model_name(kind)}; in JSON they are text",
                hint="Give keys of str, int, float, bool, bytes, datetime, date, time, timedelta, Decimal, UUID, Enum "
                "or Literal, or make it a list of pairs.",
            )
        return key

    def _composed(self, kind: Any, where: str, variables: Mapping[Any, Any]) -> TypeCodec:
        origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
        if origin is typing.Literal:
            return self._choice(kind, arguments, where)
        if origin in (typing.Union, types.UnionType):
            return _Union([self.node(each, where, variables) for each in arguments])
        if origin is tuple and arguments and arguments[-1] is not ...:
            return _Tuple([self.node(each, f"{where}[{at}]", variables) for at, each in enumerate(arguments)])
        if isinstance(origin, type):
            if dataclasses.is_dataclass(origin) or typing.is_typeddict(origin) or _is_pydantic(origin):
                return self._record(kind, origin, where, [_substituted(each, variables) for each in arguments])
            if origin in (dict, Mapping, MutableMapping):
                key, value = arguments or (str, Any)
                return _Mapping(self._key(key, where, variables), self.node(value, f"{where}[...]", variables))
            if origin in (set, frozenset, tuple, list, Sequence):
                node = self.node(arguments[0] if arguments else Any, f"{where}[...]", variables)
                return _Items(list if origin is Sequence else origin, node)
        if self._lenient:
            return _Anything()
        raise ConfigError(
            f"{where} has the type {kind!r}, which has no JSON form",
            hint="Use str, int, float, bool, bytes, datetime, date, time, timedelta, Decimal, UUID, Enum, Literal, "
            "lists, tuples, sets and dicts of these, other dataclasses, pydantic models, or a serde of your own.",
        )

    def _record(self, kind: Any, origin: Any, where: str, arguments: Sequence[Any]) -> TypeCodec:
        variables = dict(zip(_parameters(origin), arguments, strict=False))
        if getattr(origin, "__pydantic_root_model__", False):
            return self.node(origin.model_fields["root"].annotation, where, variables)
        identity = (id(origin), *map(id, arguments))  # not their hashes, which some have not; kept, so no other gets it
        if identity in self._records:
            return self._records[identity][0]
        record = RecordNode(origin)
        self._records[identity] = record, arguments
        inside = model_name(origin) if where == model_name(kind) else where
        if _is_pydantic(origin) and hasattr(origin, "model_fields"):
            for name, info in origin.model_fields.items():
                if info.exclude:
                    continue
                node = self.node(info.annotation, f"{inside}.{name}", variables)
                record.fields.append(_Field(name, info.serialization_alias or info.alias or name, node))
            return record
        hints = _hints(origin)
        if record.is_dict:
            for name, hint in hints.items():
                marked = typing.get_origin(hint)
                optional = marked is typing.NotRequired or (
                    name in origin.__optional_keys__ and marked is not typing.Required
                )
                record.fields.append(_Field(name, name, self.node(hint, f"{inside}.{name}", variables), optional))
            return record
        initvars = [name for name, hint in hints.items() if isinstance(hint, dataclasses.InitVar)]
        if initvars and not self._lenient:
            raise ConfigError(
                f"{inside}.{initvars[0]} is an InitVar, which is not kept, so it cannot be written",
                hint="Make it a field, or give a serde of your own.",
            )
        for field in dataclasses.fields(origin):
            wire = field.metadata.get("name", field.name)
            if not isinstance(wire, str) or wire in record.names:
                raise ConfigError(f"{inside}.{field.name} has the name {wire!r} in JSON", hint=_MISSING_NAME)
            has_default = not (field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING)
            node = self.node(hints[field.name], f"{inside}.{field.name}", variables)
            record.fields.append(_Field(field.name, wire, node, has_default or not field.init, field.init))
        return record


def _substituted(kind: Any, variables: Mapping[Any, Any]) -> Any:
    """Return a type with its variables replaced."""
    if isinstance(kind, typing.TypeVar):
        return variables.get(kind, kind)
    parameters = getattr(kind, "__parameters__", ()) if typing.get_origin(kind) is not None else ()
    return kind[tuple(variables.get(each, each) for each in parameters)] if parameters else kind


def _parameters(origin: Any) -> tuple[Any, ...]:
    return tuple(getattr(origin, "__type_params__", ()) or getattr(origin, "__parameters__", ()))
