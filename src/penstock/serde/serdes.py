"""The serdes for users: ``Serdes.string()``, or ``Serdes.of("string")``."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload
from uuid import UUID

from penstock.base.durations import DurationLike, duration_ms
from penstock.base.java_names import with_java_names
from penstock.base.nearest_name import did_you_mean
from penstock.errors import ConfigError
from penstock.serde.base import Serde
from penstock.serde.bound_serdes import own_serde
from penstock.serde.json_serde import JsonSerde, StructSerde
from penstock.serde.model_serde import ModelSerde
from penstock.serde.models import is_model
from penstock.serde.primitives import (
    BooleanSerde,
    BytesSerde,
    ListSerde,
    NumberSerde,
    StringSerde,
    TextLongSerde,
    UuidSerde,
    VoidSerde,
)
from penstock.serde.self_describing import AutoSerde
from penstock.serde.table_changes import ChangeSerde
from penstock.serde.windowed import SessionWindowedSerde, TimeWindowedSerde

if TYPE_CHECKING:
    from penstock.serde.windowed import Windowed

__all__ = [
    "NESTED_NAMES",
    "SIMPLE_NAMES",
    "BooleanName",
    "BytesName",
    "FloatName",
    "IntName",
    "Serdes",
    "StrName",
    "UuidName",
]

T = TypeVar("T")


@with_java_names
class Serdes:
    """Kafka's ``Serdes``: every method returns a serde."""

    @staticmethod
    def string(*, invalid: Literal["fail", "replace"] = "fail") -> Serde[str]:
        r"""Return the serde of UTF-8 text.

        Args:
            invalid: What becomes of bytes that are not UTF-8: an error, or "replace" them as Java's
                ``StringDeserializer`` does, by the character U+FFFD.

        >>> Serdes.string(invalid="replace").deserialize(b"caf\xe9") == "caf\ufffd"
        True
        """
        if invalid not in ("fail", "replace"):
            raise ConfigError(f'Serdes.string(): invalid is "fail" or "replace", not {invalid!r}')
        return StringSerde(replaces=invalid == "replace")

    @staticmethod
    def bytes() -> Serde[bytes]:
        """Return the serde of bytes as they are (Kafka: ``ByteArray``)."""
        return BytesSerde()

    @staticmethod
    def long() -> Serde[int]:
        """Return the serde of integers of 8 bytes."""
        return NumberSerde("long")

    @staticmethod
    def integer() -> Serde[int]:
        """Return the serde of integers of 4 bytes."""
        return NumberSerde("integer")

    @staticmethod
    def short() -> Serde[int]:
        """Return the serde of integers of 2 bytes."""
        return NumberSerde("short")

    @staticmethod
    def double() -> Serde[builtins.float]:
        """Return the serde of floats of 8 bytes."""
        return NumberSerde("double")

    @staticmethod
    def float() -> Serde[builtins.float]:
        """Return the serde of floats of 4 bytes."""
        return NumberSerde("float")

    @staticmethod
    def boolean() -> Serde[bool]:
        """Return the serde of booleans of one byte."""
        return BooleanSerde()

    @staticmethod
    def uuid() -> Serde[UUID]:
        """Return the serde of UUIDs as text of 36 characters."""
        return UuidSerde()

    @staticmethod
    def void() -> Serde[None]:
        """Return the serde of null only."""
        return VoidSerde()

    @staticmethod
    def json(schema: Any = None) -> Serde[Any]:
        """Return the serde of JSON values; with a schema, of objects that become a struct column.

        Args:
            schema: Names and types, e.g. ``{"user": str, "amount": float}``, a Polars schema, or an Arrow schema.
        """
        return JsonSerde() if schema is None else StructSerde(schema)

    @staticmethod
    def avro(
        schema: Any = None, *, framing: str | None = None, registry: str | Mapping[str, Any] | None = None
    ) -> Serde[Any]:
        """Return the serde of Avro values (Kafka: ``GenericAvroSerde``); records are dicts.

        >>> hit = {"type": "record", "name": "Hit", "fields": [{"name": "status", "type": "int"}]}
        >>> serde = Serdes.avro(hit, framing="none")
        >>> serde.serialize({"status": 404}).hex()
        'a806'

        Args:
            schema: JSON text, a dict, or the path of an ``.avsc`` file; without one, values are read with the schema
                they were written with.
            framing: Where the id of the schema in the registry goes: "prefix" (the default) or "header"; "none": there
                is not a registry, the bytes are bare.
            registry: The registry's URL, or settings by Kafka's names; the application's config adds the rest.
        """
        from penstock.serde.schemas.avro import AvroSerde

        return AvroSerde(schema, framing, registry)

    @staticmethod
    def protobuf(
        message: type[T], *, framing: str | None = None, registry: str | Mapping[str, Any] | None = None
    ) -> Serde[T]:
        """Return the serde of Protobuf messages (Kafka: ``KafkaProtobufSerde``); dicts are written too.

        Args:
            message: The class that protoc generated.
            framing: As for `avro`.
            registry: As for `avro`.
        """
        from penstock.serde.schemas.protobuf import ProtobufSerde

        return ProtobufSerde(message, framing, registry)

    @staticmethod
    def json_schema(
        schema: Any = None, *, framing: str | None = None, registry: str | Mapping[str, Any] | None = None
    ) -> Serde[Any]:
        """Return the serde of JSON values with a JSON Schema (Kafka: ``KafkaJsonSchemaSerde``).

        Args:
            schema: JSON text, a dict, the path of a file, or a type whose values are read and written: a dataclass, a
                model of pydantic; without one, any value is read.
            framing: As for `avro`.
            registry: As for `avro`.
        """
        from penstock.serde.schemas.json_schema import JsonSchemaSerde

        return JsonSchemaSerde(schema, framing, registry)

    @overload
    @staticmethod
    def list(inner: StrName) -> Serde[builtins.list[str]]: ...

    @overload
    @staticmethod
    def list(inner: IntName) -> Serde[builtins.list[int]]: ...

    @overload
    @staticmethod
    def list(inner: FloatName) -> Serde[builtins.list[builtins.float]]: ...

    @overload
    @staticmethod
    def list(inner: BooleanName) -> Serde[builtins.list[bool]]: ...

    @overload
    @staticmethod
    def list(inner: BytesName) -> Serde[builtins.list[builtins.bytes]]: ...

    @overload
    @staticmethod
    def list(inner: UuidName) -> Serde[builtins.list[UUID]]: ...

    @overload
    @staticmethod
    def list(inner: str) -> Serde[builtins.list[Any]]: ...

    @overload
    @staticmethod
    def list(inner: Serde[T] | type[T]) -> Serde[builtins.list[T]]: ...

    @staticmethod
    def list(inner: Serde[Any] | type | str) -> Serde[Any]:
        """Return the serde of lists of one type (Kafka: ``ListSerde`` of ``ArrayList``)."""
        return ListSerde(Serdes.of(inner))

    @overload
    @staticmethod
    def time_windowed(inner: StrName, size_ms: DurationLike | None = None) -> Serde[Windowed[str]]: ...

    @overload
    @staticmethod
    def time_windowed(inner: IntName, size_ms: DurationLike | None = None) -> Serde[Windowed[int]]: ...

    @overload
    @staticmethod
    def time_windowed(inner: FloatName, size_ms: DurationLike | None = None) -> Serde[Windowed[builtins.float]]: ...

    @overload
    @staticmethod
    def time_windowed(inner: BooleanName, size_ms: DurationLike | None = None) -> Serde[Windowed[bool]]: ...

    @overload
    @staticmethod
    def time_windowed(inner: BytesName, size_ms: DurationLike | None = None) -> Serde[Windowed[builtins.bytes]]: ...

    @overload
    @staticmethod
    def time_windowed(inner: UuidName, size_ms: DurationLike | None = None) -> Serde[Windowed[UUID]]: ...

    @overload
    @staticmethod
    def time_windowed(inner: str, size_ms: DurationLike | None = None) -> Serde[Windowed[Any]]: ...

    @overload
    @staticmethod
    def time_windowed(inner: Serde[T] | type[T], size_ms: DurationLike | None = None) -> Serde[Windowed[T]]: ...

    @staticmethod
    def time_windowed(inner: Serde[Any] | type | str, size_ms: DurationLike | None = None) -> Serde[Any]:
        """Return the serde of keys of time windows; without the size, windows read back end at the end of time."""
        if size_ms is None:
            return TimeWindowedSerde(Serdes.of(inner))
        return TimeWindowedSerde(Serdes.of(inner), duration_ms(size_ms, "window size"))

    @overload
    @staticmethod
    def session_windowed(inner: StrName) -> Serde[Windowed[str]]: ...

    @overload
    @staticmethod
    def session_windowed(inner: IntName) -> Serde[Windowed[int]]: ...

    @overload
    @staticmethod
    def session_windowed(inner: FloatName) -> Serde[Windowed[builtins.float]]: ...

    @overload
    @staticmethod
    def session_windowed(inner: BooleanName) -> Serde[Windowed[bool]]: ...

    @overload
    @staticmethod
    def session_windowed(inner: BytesName) -> Serde[Windowed[builtins.bytes]]: ...

    @overload
    @staticmethod
    def session_windowed(inner: UuidName) -> Serde[Windowed[UUID]]: ...

    @overload
    @staticmethod
    def session_windowed(inner: str) -> Serde[Windowed[Any]]: ...

    @overload
    @staticmethod
    def session_windowed(inner: Serde[T] | type[T]) -> Serde[Windowed[T]]: ...

    @staticmethod
    def session_windowed(inner: Serde[Any] | type | str) -> Serde[Any]:
        """Return the serde of keys of session windows."""
        return SessionWindowedSerde(Serdes.of(inner))

    @staticmethod
    def text_long() -> Serde[int]:
        """Return the serde of a long as decimal text."""
        return TextLongSerde()

    @staticmethod
    def auto() -> Serde[Any]:
        """Return the serde of self-describing Python values; not Kafka's, for internal topics and stores."""
        return AutoSerde()

    @overload
    @staticmethod
    def of(serde: StrName) -> Serde[str]: ...

    @overload
    @staticmethod
    def of(serde: IntName) -> Serde[int]: ...

    @overload
    @staticmethod
    def of(serde: FloatName) -> Serde[builtins.float]: ...

    @overload
    @staticmethod
    def of(serde: BooleanName) -> Serde[bool]: ...

    @overload
    @staticmethod
    def of(serde: BytesName) -> Serde[builtins.bytes]: ...

    @overload
    @staticmethod
    def of(serde: UuidName) -> Serde[UUID]: ...

    @overload
    @staticmethod
    def of(serde: str) -> Serde[Any]: ...

    @overload
    @staticmethod
    def of(serde: Serde[T] | type[T]) -> Serde[T]: ...

    @staticmethod
    def of(serde: Serde[Any] | str | type) -> Serde[Any]:
        """Return a serde itself, or one by its name.

        >>> Serdes.of("list<long>").name
        'list<long>'

        Args:
            serde: A serde, a name ("string", "list<long>", "windowed<string,60000>"), a Python type (str, int, float,
                bool, bytes, UUID; dict and list are JSON; so are dataclasses, pydantic's models, and types that hold
                them, such as ``Order | None`` or ``list[Order]``) or the name of Kafka's Java class.

        Raises:
            ConfigError: There is no serde of that name.
        """
        if isinstance(serde, type):
            if serde in _PYTHON:
                return _SIMPLE[_PYTHON[serde]]()
            if is_model(serde):
                return ModelSerde(serde)
            if _looks_like_serde(serde):
                return own_serde(_made(serde))
        elif is_model(serde):
            return ModelSerde(serde)
        elif isinstance(serde, str):
            return _by_name(serde.strip())
        elif _looks_like_serde(serde):
            return own_serde(serde)
        raise ConfigError(
            f"{serde!r} is not a serde",
            hint='Give Serdes.string(), a name such as "long", an object with serialize() and deserialize(), best '
            "derived from penstock.serde.BaseSerde, or a type: str, int, float, bool, bytes, UUID, dict or list, "
            "a dataclass, a pydantic model.",
        )


_SIMPLE: dict[str, Callable[[], Serde[Any]]] = {
    "string": Serdes.string,
    "bytes": Serdes.bytes,
    "long": Serdes.long,
    "integer": Serdes.integer,
    "short": Serdes.short,
    "double": Serdes.double,
    "float": Serdes.float,
    "boolean": Serdes.boolean,
    "uuid": Serdes.uuid,
    "void": Serdes.void,
    "json": Serdes.json,
    "text_long": Serdes.text_long,
    "auto": Serdes.auto,
    "avro": Serdes.avro,
    "json_schema": Serdes.json_schema,
}
_PYTHON: dict[type, str] = {
    str: "string",
    int: "long",
    float: "double",
    bool: "boolean",
    bytes: "bytes",
    dict: "json",
    builtins.list: "json",
    UUID: "uuid",
    type(None): "void",
}
_ALIASES = {
    "bytearray": "bytes",
    "byte_array": "bytes",
    "int": "integer",
    "bool": "boolean",
    "none": "void",
    "str": "string",
    "genericavro": "avro",
    "kafkajsonschema": "json_schema",
}
_NESTED: dict[str, Callable[[Serde[Any]], Serde[Any]]] = {
    "list": ListSerde,
    "windowed": TimeWindowedSerde,
    "time_windowed": TimeWindowedSerde,
    "session": SessionWindowedSerde,
    "session_windowed": SessionWindowedSerde,
    "change": ChangeSerde,
}

_MOST_LEVELS = 20  # of serdes in serdes
_JAVA = ("org.apache.kafka.", "io.confluent.", "Serdes.", "Serdes$")  # classes that are known by their last name

SIMPLE_NAMES = tuple(_SIMPLE)
NESTED_NAMES = tuple(name for name in _NESTED if name != "change")  # that one is for internal topics


def _looks_like_serde(serde: Any) -> bool:
    return hasattr(serde, "serialize") or hasattr(serde, "deserialize")


def _made(kind: type) -> Any:
    """Return an instance of a user's class."""
    try:
        return kind()
    except TypeError as error:
        raise ConfigError(
            f"serde {kind.__name__} cannot be made without arguments: {error}",
            hint="Give an instance of it, not the class.",
        ) from error


def _by_name(name: str) -> Serde[Any]:
    if name.count("<") > _MOST_LEVELS:  # names come from clients of the console too
        raise ConfigError(
            f"a serde in more than {_MOST_LEVELS} others: {name[:40]}...", hint="Use json for such values."
        )
    if name.startswith("model<"):  # its type is not to be had by name, but its values are JSON
        return JsonSerde()
    if name == "string<replace>":
        return StringSerde(replaces=True)
    head, bracket, rest = name.partition("<")
    if bracket and rest.endswith(">") and head in _NESTED:
        inner, _, size = rest[:-1].rpartition(",")
        if head in {"windowed", "time_windowed"} and inner and size.strip().isdigit():
            return TimeWindowedSerde(_by_name(inner.strip()), int(size))
        return _NESTED[head](_by_name(rest[:-1].strip()))
    if "." in name and not name.startswith(_JAVA):
        raise ConfigError(
            f"there is no serde {name!r}",
            hint="Your own classes cannot be given by name: give the class or an instance.",
        )
    short = name.rpartition("$")[2] if "$" in name else name.rpartition(".")[2]
    plain = short.removesuffix("Serde").lower()
    plain = _ALIASES.get(plain, plain)
    if plain in _SIMPLE:
        return _SIMPLE[plain]()
    meant = did_you_mean(plain, [*_SIMPLE, *_NESTED])
    names = ", ".join([*_SIMPLE, *(f"{n}<...>" for n in _NESTED)])
    raise ConfigError(f"there is no serde {name!r}", hint=f"{meant} Known: {names}.".lstrip())


StrName = Literal["string", "str"]
IntName = Literal["long", "integer", "int", "short", "text_long"]
FloatName = Literal["double", "float"]
BooleanName = Literal["boolean", "bool"]
BytesName = Literal["bytes", "bytearray", "byte_array"]
UuidName = Literal["uuid"]
