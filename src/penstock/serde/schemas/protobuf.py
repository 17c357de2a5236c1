"""Protobuf messages, with a schema registry and without."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from penstock.errors import ConfigError, SerializationError
from penstock.serde.buffers import large_binary
from penstock.serde.column import Column
from penstock.serde.formats.proto_classes import name_at, proto_file
from penstock.serde.schemas.base import SchemaSerde
from penstock.serde.schemas.client import Registered, RegistryClient
from penstock.serde.schemas.column import EncodedColumn
from penstock.serde.schemas.protobuf_path import index_bytes, indexes_of, read_indexes, skip_indexes
from penstock.serde.schemas.protobuf_values import column_type, fill, to_series

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

__all__ = ["ProtobufSerde"]

_MOST_PLANS = 1_000
_KNOWN_FILES = ("google/protobuf/", "google/type/", "confluent/")


class ProtobufSerde(SchemaSerde):
    """Protobuf's binary form. Values are messages; dicts are taken too, and messages in expressions are structs.

    Fields that the message's class does not know stay in the message, and are written again.

    Args:
        message: The class of the messages, as generated from a ``.proto`` file.
        framing: See `SchemaSerde`.
        registry: See `SchemaSerde`.
    """

    def __init__(
        self, message: type, framing: str | None = None, registry: str | Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(framing, registry)
        if not isinstance(message, type) or not hasattr(message, "DESCRIPTOR"):
            raise ConfigError(
                f"{message!r} is not a class of Protobuf messages",
                hint="Give the class that protoc generated, e.g. Serdes.protobuf(order_pb2.Order).",
            )
        self.message: Any = message
        self._indexes = index_bytes(indexes_of(self.message.DESCRIPTOR))

    @property
    def name(self) -> str:
        shown = self.message.DESCRIPTOR.full_name
        if self.framing != "none":
            return f"protobuf<{shown}>"
        data = self.message.DESCRIPTOR.file.serialized_pb
        return f"protobuf<{shown}#{hashlib.blake2b(data, digest_size=4).hexdigest()}>"

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the message's fields."""
        return tuple(field.name for field in self.message.DESCRIPTOR.fields)

    @property
    def schema_key(self) -> Any:
        return self.message.DESCRIPTOR.full_name, self.message.DESCRIPTOR.file.serialized_pb

    @property
    def record_name(self) -> str | None:
        return str(self.message.DESCRIPTOR.full_name)

    def to_register(self, client: RegistryClient) -> Schema | None:
        return self._schema(client, self.message.DESCRIPTOR.file)

    def _schema(self, client: RegistryClient, file: Any) -> Schema:
        """Return the file as a schema, all that it imports registered by file name, as Confluent's serializers do."""
        from confluent_kafka.schema_registry import Schema

        references = [
            client.reference(other.name, self._schema(client, other), auto_register=self.auto_register)
            for other in file.dependencies
            if not other.name.startswith(_KNOWN_FILES)
        ]
        return Schema(base64.b64encode(file.serialized_pb).decode(), "PROTOBUF", references)

    def frame_of(self, registered: Registered) -> bytes:
        return super().frame_of(registered) + self._indexes

    def write(self, value: Any, registered: Registered | None) -> bytes:  # noqa: ARG002 - the class says all
        if not isinstance(value, self.message):
            value = self._message(value)
        try:
            data: bytes = value.SerializeToString(deterministic=True)
        except Exception as error:  # noqa: BLE001 - EncodeError: a required field is missing
            self.refuse(value, f"complete {self.record_name} messages ({error})", error)
        return data

    def _message(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            message = self.message()
            try:
                fill(message, value)
            except (TypeError, ValueError, LookupError, AttributeError) as error:
                self.refuse(value, f"dicts of {self.record_name} ({error})", error)
            return message
        descriptor = getattr(value, "DESCRIPTOR", None)
        if descriptor is None or descriptor.full_name != self.record_name:
            self.refuse(value, f"{self.record_name} messages or dicts")
        return value

    def read(self, data: bytes, start: int, registered: Registered | None) -> Any:
        if registered is not None:
            start = self._message_start(data, start, registered)
        return self._parsed(data, start)

    def _parsed(self, data: bytes, start: int) -> Any:
        from google.protobuf.message import DecodeError

        try:
            return self.message.FromString(data[start:])
        except (DecodeError, RuntimeError) as error:
            self.reject(data, f"{self.record_name} messages ({error})", error)

    def _message_start(self, data: bytes, start: int, registered: Registered) -> int:
        """Skip the path that identifies the message within its file.

        Raises:
            SerializationError: It is another message than the serde's.
        """
        end = skip_indexes(data, start)
        if end < 0:
            self.reject(data, "the path of a message in its file")
        path = data[start:end]
        key = (id(registered), path)
        plan = self._plans.get(key)
        if plan is None:
            plan = (registered, _name_in(registered, read_indexes(path)))
            if len(self._plans) < _MOST_PLANS:  # paths come with records: anybody can make up new ones
                self._plans[key] = plan
        record_name = plan[1]
        if record_name not in (None, self.record_name):
            raise SerializationError(
                f"the {self.name} serde reads {self.record_name}, and these bytes are a {record_name}",
                hint="Give the topic the serde it was written with.",
                serde=self.name,
            )
        return end

    def decode(self, data: pa.Array) -> Column:
        data = large_binary(data)
        return EncodedColumn(data, self, items=self.deserialize_rows(data.to_pylist()))

    def read_column(self, data: pa.Array, skip: int, registered: Registered | None) -> pl.Series | None:
        kind = column_type(self.message.DESCRIPTOR)
        if kind is None:
            return None
        return to_series([self.read(row, skip, registered) for row in data.to_pylist()], self.message.DESCRIPTOR)

    def series_of(self, items: list[Any]) -> pl.Series | None:
        return None if column_type(self.message.DESCRIPTOR) is None else to_series(items, self.message.DESCRIPTOR)

    def __getstate__(self) -> dict[str, Any]:
        # Classes made at run time have no module to import them from: the descriptors go along.
        return {**super().__getstate__(), "message": _packed(self.message)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, message=_unpacked(*state["message"]))


def _name_in(registered: Registered, indexes: list[int]) -> str | None:
    """Return the full name of the message at these places of a registered file; None if its text cannot be parsed."""
    try:
        file = proto_file(registered.schema.text)
    except ValueError:
        return None
    try:
        return name_at(file, indexes)
    except ValueError:
        return f"message {indexes} that its file lacks"


def _packed(message: Any) -> tuple[str, str, str, tuple[bytes, ...]]:
    """Return the module from which the class may be imported, its full name, and all files that it needs."""
    files: dict[str, bytes] = {}

    def visit(file: Any) -> None:
        for other in file.dependencies:
            visit(other)
        files.setdefault(file.name, file.serialized_pb)

    visit(message.DESCRIPTOR.file)
    return message.__module__, message.__qualname__, message.DESCRIPTOR.full_name, tuple(files.values())


_made: dict[tuple[str, tuple[bytes, ...]], Any] = {}


def _unpacked(module: str, qualified_name: str, full_name: str, files: tuple[bytes, ...]) -> Any:
    """Return the class itself where it can be imported, else one made of the files, once per process."""
    import importlib

    from google.protobuf import descriptor_pool, message_factory

    try:
        message_type: Any = importlib.import_module(module)
        for part in qualified_name.split("."):
            message_type = getattr(message_type, part)
        if message_type.DESCRIPTOR.file.serialized_pb == files[-1]:
            return message_type
    except (ImportError, AttributeError):
        pass  # made at run time, or its module is not here
    key = (full_name, files)
    if key not in _made:
        pool = descriptor_pool.DescriptorPool()
        for file in files:
            pool.AddSerializedFile(file)
        _made[key] = message_factory.GetMessageClass(pool.FindMessageTypeByName(full_name))
    return _made[key]
