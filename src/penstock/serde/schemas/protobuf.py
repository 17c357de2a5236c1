"""Protobuf messages, with a schema registry and without.

A message is a struct; a field with presence (optional, oneof, messages) is null when not set.
Enums are their names, timestamps and durations have microseconds, wrappers are plain values that may be null, and
``Struct``, ``Value`` and ``ListValue`` are JSON text. Messages that hold themselves have no column type.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from penstock.base.terminal.human_numbers import with_article
from penstock.errors import ConfigError, SerializationError
from penstock.serde.column import Column, large_binary
from penstock.serde.formats.proto_classes import SCALARS, name_at, proto_file
from penstock.serde.schemas.base import EncodedColumn, SchemaSerde
from penstock.serde.schemas.client import Registered, RegistryClient
from penstock.serde.schemas.value_bytes import index_bytes, indexes_of, read_indexes, skip_indexes

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

__all__ = ["ProtobufSerde"]

_US = 1_000_000
_SCALARS = {
    "double": pa.float64(),
    "float": pa.float32(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "int32": pa.int32(),
    "fixed64": pa.uint64(),
    "fixed32": pa.uint32(),
    "bool": pa.bool_(),
    "string": pa.large_string(),
    "bytes": pa.large_binary(),
    "uint32": pa.uint32(),
    "enum": pa.large_string(),
    "sfixed32": pa.int32(),
    "sfixed64": pa.int64(),
    "sint32": pa.int32(),
    "sint64": pa.int64(),
}
_KINDS = {number: word for word, number in SCALARS.items()} | {10: "group", 11: "message", 14: "enum"}
_WRAPPERS = {
    "DoubleValue": pa.float64(),
    "FloatValue": pa.float32(),
    "Int64Value": pa.int64(),
    "UInt64Value": pa.uint64(),
    "Int32Value": pa.int32(),
    "UInt32Value": pa.uint32(),
    "BoolValue": pa.bool_(),
    "StringValue": pa.large_string(),
    "BytesValue": pa.large_binary(),
}


def _json(message: Any) -> str:
    from google.protobuf.json_format import MessageToJson

    return str(MessageToJson(message, indent=None))


# Messages of Google's that are plain values: column type, and the value of a message.
_WELL_KNOWN: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "google.protobuf.Timestamp": (pa.timestamp("us", "UTC"), lambda m: m.seconds * _US + m.nanos // 1000),
    "google.protobuf.Duration": (pa.duration("us"), lambda m: m.seconds * _US + m.nanos // 1000),
    **{f"google.protobuf.{name}": (kind, attrgetter("value")) for name, kind in _WRAPPERS.items()},
    **{f"google.protobuf.{name}": (pa.large_string(), _json) for name in ("Struct", "Value", "ListValue")},
}


@lru_cache(maxsize=256)
def column_type(descriptor: Any) -> pa.DataType | None:
    """Return the Arrow type of messages; None for those that hold themselves."""
    return _message_type(descriptor, ())


def _message_type(descriptor: Any, above: tuple[str, ...]) -> pa.DataType | None:
    well_known = _WELL_KNOWN.get(descriptor.full_name)
    if well_known is not None:
        return well_known[0]
    if descriptor.full_name in above:
        return None
    if not descriptor.fields:
        return pa.bool_()  # whether it is there
    inner = [(field.name, _field_type(field, (*above, descriptor.full_name))) for field in descriptor.fields]
    return None if any(kind is None for _, kind in inner) else pa.struct(inner)


def _field_type(field: Any, above: tuple[str, ...]) -> pa.DataType | None:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        value = _one_type(entry["value"], above)
        return None if value is None else pa.map_(_SCALARS[_KINDS[entry["key"].type]], value)
    kind = _one_type(field, above)
    return pa.large_list(kind) if kind is not None and _is_repeated(field) else kind


def _one_type(field: Any, above: tuple[str, ...]) -> pa.DataType | None:
    if field.message_type is not None:
        return _message_type(field.message_type, above)
    return _SCALARS[_KINDS[field.type]]


def _is_repeated(field: Any) -> bool:
    is_repeated = getattr(field, "is_repeated", None)
    return field.label == field.LABEL_REPEATED if is_repeated is None else bool(is_repeated)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def to_series(messages: list[Any], descriptor: Any) -> pl.Series:
    """Return the messages as one column, field by field.

    Raises:
        SerializationError: A value has no place in its column, such as a time out of range.
    """
    try:
        return pl.Series("", pl.from_arrow(_messages(messages, descriptor)))
    except (pa.ArrowException, OverflowError, pl.exceptions.PolarsError) as error:
        raise SerializationError(f"{descriptor.full_name} messages have no column type: {error}") from error


def _messages(messages: list[Any], descriptor: Any) -> pa.Array:
    """Return a column of messages, null where there is none."""
    well_known = _WELL_KNOWN.get(descriptor.full_name)
    if well_known is not None:
        kind, value_of = well_known
        return pa.array([None if message is None else value_of(message) for message in messages], kind)
    there = [message is not None for message in messages]
    if not descriptor.fields:
        return pa.array([True if one else None for one in there], pa.bool_())
    present = messages if all(there) else [message for message in messages if message is not None]
    columns = [_field(present, field) for field in descriptor.fields]
    names = [field.name for field in descriptor.fields]
    struct = pa.StructArray.from_arrays(columns, names)
    return struct if len(present) == len(messages) else _spread(struct, there)


def _spread(values: pa.Array, there: list[bool]) -> pa.Array:
    positions = iter(range(len(values)))
    index = [next(positions) if one else None for one in there]
    return values.take(pa.array(index, pa.int64()))


def _field(messages: list[Any], field: Any) -> pa.Array:
    name = field.name
    values = list(map(attrgetter(name), messages))
    if _is_map(field):
        return _map(values, field.message_type.fields_by_name)
    if _is_repeated(field):
        offsets, flat = [0], []
        for items in values:
            flat.extend(items)
            offsets.append(len(flat))
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), _values(flat, field))
    if field.has_presence:
        values = [value if message.HasField(name) else None for message, value in zip(messages, values, strict=True)]
    return _values(values, field)


def _map(values: list[Any], entry: Any) -> pa.Array:
    offsets, keys, map_values = [0], [], []
    for one in values:
        for key in one:
            keys.append(key)
            map_values.append(one[key])
        offsets.append(len(keys))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), _values(keys, entry["key"]), _values(map_values, entry["value"])
    )


def _values(values: list[Any], field: Any) -> pa.Array:
    if field.message_type is not None:
        return _messages(values, field.message_type)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return pa.array(
            [None if number is None else names.get(number, str(number)) for number in values], pa.large_string()
        )
    return pa.array(values, _SCALARS[_KINDS[field.type]])


def fill(message: Any, values: Mapping[str, Any]) -> None:
    """Set a message's fields from a dict, such as a row of a struct column; None leaves a field unset.

    Raises:
        LookupError: There is no such field or enum symbol.
        TypeError: A value is of the wrong type; or ValueError, it is out of range.
    """
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in values.items():
        if name not in fields:
            raise LookupError(f"{message.DESCRIPTOR.full_name} has no field {name!r}")
        if value is None:
            continue
        field = fields[name]
        if _is_map(field):
            _fill_map(getattr(message, name), field.message_type.fields_by_name["value"], value)
        elif field.message_type is None:
            if _is_repeated(field):
                getattr(message, name).extend(_scalar(field, item) for item in value)
            else:
                setattr(message, name, _scalar(field, value))
        elif _is_repeated(field):
            for item in value:
                _fill_one(getattr(message, name).add(), item)
        else:
            _fill_one(getattr(message, name), value)


def _fill_map(target: Any, field: Any, values: Any) -> None:
    pairs = values.items() if isinstance(values, Mapping) else [(pair["key"], pair["value"]) for pair in values]
    for key, value in pairs:
        if field.message_type is None:
            target[key] = _scalar(field, value)
        else:
            _fill_one(target[key], value)


def _scalar(field: Any, value: Any) -> Any:
    if field.enum_type is None or not isinstance(value, str):
        return value
    if value not in field.enum_type.values_by_name:
        raise LookupError(f"{field.enum_type.full_name} has no symbol {value!r}")
    return field.enum_type.values_by_name[value].number


def _fill_one(target: Any, value: Any) -> None:
    """Set a message that is a field of another."""
    name = target.DESCRIPTOR.full_name
    if isinstance(value, type(target)):
        target.CopyFrom(value)
    elif isinstance(value, dt.datetime):
        target.FromDatetime(value)
    elif isinstance(value, dt.timedelta):
        target.FromTimedelta(value)
    elif name.removeprefix("google.protobuf.") in _WRAPPERS:
        target.value = value
        target.SetInParent()
    elif name in _WELL_KNOWN and isinstance(value, str):
        from google.protobuf.json_format import Parse

        Parse(value, target)
    elif isinstance(value, Mapping):
        target.SetInParent()
        fill(target, value)
    elif value is True and not target.DESCRIPTOR.fields:
        target.SetInParent()
    else:
        raise TypeError(f"{with_article(name)} is not {with_article(type(value).__name__)}")


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
