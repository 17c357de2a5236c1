"""Where users get serdes: ``Serdes.string()``, or ``Serdes.of("string")``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from penstock.durations import DurationLike, duration_ms
from penstock.errors import ConfigError
from penstock.serde.auto import AutoSerde
from penstock.serde.base import Serde
from penstock.serde.changes import ChangeSerde
from penstock.serde.json_serde import JsonSerde, StructSerde
from penstock.serde.lists import ListSerde
from penstock.serde.numbers import BooleanSerde, NumberSerde, TextLongSerde
from penstock.serde.text import BytesSerde, StringSerde, UuidSerde, VoidSerde
from penstock.serde.windowed_serde import SessionWindowedSerde, TimeWindowedSerde

__all__ = ["Serdes"]


class Serdes:
    """Kafka's ``Serdes``: every method gives a serde."""

    @staticmethod
    def string() -> Serde[str]:
        """UTF-8 text."""
        return StringSerde()

    @staticmethod
    def bytes() -> Serde[bytes]:
        """The bytes as they are (Kafka: ``ByteArray``)."""
        return BytesSerde()

    @staticmethod
    def long() -> Serde[int]:
        """Integers of 8 bytes."""
        return NumberSerde("long")

    @staticmethod
    def integer() -> Serde[int]:
        """Integers of 4 bytes."""
        return NumberSerde("integer")

    @staticmethod
    def short() -> Serde[int]:
        """Integers of 2 bytes."""
        return NumberSerde("short")

    @staticmethod
    def double() -> Serde[float]:
        """Floats of 8 bytes."""
        return NumberSerde("double")

    @staticmethod
    def float() -> Serde[Any]:
        """Floats of 4 bytes."""
        return NumberSerde("float")

    @staticmethod
    def boolean() -> Serde[bool]:
        """One byte."""
        return BooleanSerde()

    @staticmethod
    def uuid() -> Serde[Any]:
        """UUIDs as text of 36 characters."""
        return UuidSerde()

    @staticmethod
    def void() -> Serde[None]:
        """Null only."""
        return VoidSerde()

    @staticmethod
    def json(schema: Any = None) -> Serde[Any]:
        """JSON values; with a schema, objects that become a struct column.

        Args:
            schema: Names and types, e.g. ``{"user": str, "amount": float}``, a Polars schema, or an Arrow schema.
        """
        return JsonSerde() if schema is None else StructSerde(schema)

    @staticmethod
    def avro(
        schema: Any = None, *, framing: str | None = None, registry: str | Mapping[str, Any] | None = None
    ) -> Serde[Any]:
        """Avro values (Kafka: ``GenericAvroSerde``); records are dicts.

        >>> hit = {"type": "record", "name": "Hit", "fields": [{"name": "status", "type": "int"}]}
        >>> serde = Serdes.avro(hit, framing="none")
        >>> serde.serialize({"status": 404}).hex()
        'a806'

        Args:
            schema: JSON text, a dict, or the path of an ``.avsc`` file; without one, values are read with the schema
                they were written with.
            framing: Where the id of the schema in the registry goes: "prefix" (the default) or "header"; "none": there
                is no registry, the bytes are bare.
            registry: The registry's URL, or settings by Kafka's names; the application's config gives the rest.
        """
        from penstock.serde.schemas.avro import AvroSerde

        return AvroSerde(schema, framing, registry)

    @staticmethod
    def protobuf(
        message: type, *, framing: str | None = None, registry: str | Mapping[str, Any] | None = None
    ) -> Serde[Any]:
        """Protobuf messages (Kafka: ``KafkaProtobufSerde``); dicts are written too.

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
        """JSON values with a JSON Schema (Kafka: ``KafkaJsonSchemaSerde``).

        Args:
            schema: JSON text, a dict, or the path of a file; without one, any value is read.
            framing: As for `avro`.
            registry: As for `avro`.
        """
        from penstock.serde.schemas.json_schema import JsonSchemaSerde

        return JsonSchemaSerde(schema, framing, registry)

    @staticmethod
    def list(inner: Serde[Any] | str) -> Serde[Any]:
        """Lists of one type (Kafka: ``ListSerde`` of ``ArrayList``)."""
        return ListSerde(Serdes.of(inner))

    @staticmethod
    def time_windowed(inner: Serde[Any] | str, size_ms: DurationLike | None = None) -> Serde[Any]:
        """Keys of time windows; without the size, windows read back end at the end of time."""
        if size_ms is None:
            return TimeWindowedSerde(Serdes.of(inner))
        return TimeWindowedSerde(Serdes.of(inner), duration_ms(size_ms, "window size"))

    @staticmethod
    def session_windowed(inner: Serde[Any] | str) -> Serde[Any]:
        """Keys of session windows."""
        return SessionWindowedSerde(Serdes.of(inner))

    @staticmethod
    def text_long() -> Serde[int]:
        """A long as decimal text."""
        return TextLongSerde()

    @staticmethod
    def auto() -> Serde[Any]:
        """Plain Python values that say themselves what they are; not Kafka's, for internal topics and stores."""
        return AutoSerde()

    @staticmethod
    def of(serde: Serde[Any] | str | type) -> Serde[Any]:
        """A serde itself, or one by its name.

        >>> Serdes.of("list<long>").name
        'list<long>'

        Args:
            serde: A serde, a name ("string", "list<long>", "windowed<string,60000>"), a Python type (str, int, float,
                bool, bytes, dict) or the name of Kafka's Java class.

        Raises:
            ConfigError: There is no serde of that name.
        """
        if isinstance(serde, type):
            if isinstance(serde, type) and serde in _PYTHON:
                return _SIMPLE[_PYTHON[serde]]()
            made = serde()
            if isinstance(made, Serde):
                return made
        elif isinstance(serde, str):
            return _by_name(serde.strip())
        elif isinstance(serde, Serde):
            return serde
        raise ConfigError(
            f"{serde!r} is no serde",
            hint='Give Serdes.string(), a name such as "long", or an object with all methods of Serde.',
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


def _by_name(name: str) -> Serde[Any]:
    head, bracket, rest = name.partition("<")
    if bracket and rest.endswith(">") and head in _NESTED:
        inner, _, size = rest[:-1].rpartition(",")
        if head in {"windowed", "time_windowed"} and inner and size.strip().isdigit():
            return TimeWindowedSerde(_by_name(inner.strip()), int(size))
        return _NESTED[head](_by_name(rest[:-1].strip()))
    short = name.rpartition("$")[2] if "$" in name else name.rpartition(".")[2]
    plain = short.removesuffix("Serde").lower()
    plain = _ALIASES.get(plain, plain)
    if plain in _SIMPLE:
        return _SIMPLE[plain]()
    near = difflib.get_close_matches(plain, [*_SIMPLE, *_NESTED], 1)
    meant = f'Did you mean "{near[0]}"? ' if near else ""
    raise ConfigError(
        f"there is no serde {name!r}", hint=f"{meant}Known: {', '.join([*_SIMPLE, *(f'{n}<...>' for n in _NESTED)])}."
    )
