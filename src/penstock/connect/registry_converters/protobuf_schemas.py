"""Connect's schemas as Protobuf files, by the naming of Confluent's converter: nested messages, tags, parameters."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from penstock.connect.data import DataError, Schema, Type
from penstock.serde.data.logical import DATE_NAME, DECIMAL_NAME, TIME_NAME, TIMESTAMP_NAME
from penstock.serde.schemas.proto_classes import set_parameters

__all__ = ["ENUM", "NAMESPACE", "TAG", "TYPE", "UNION", "WRAPPERS", "ProtobufNaming", "field_name", "protobuf_file"]

NAMESPACE = "io.confluent.connect.protobuf"
ENUM, UNION, TAG, TYPE = (f"{NAMESPACE}.{part}" for part in ("Enum", "Union", "Tag", "Type"))
OPTIONAL, REPEATED = 1, 3
ENUM_TYPE, MESSAGE_TYPE = 14, 11
SCALARS = {
    Type.INT8: "int32",
    Type.INT16: "int32",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "bool",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
NUMBERS = {"double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7, "bool": 8}
NUMBERS |= {"string": 9, "bytes": 12, "uint32": 13, "sfixed32": 15, "sfixed64": 16, "sint32": 17, "sint64": 18}
WRAPPERS = {
    "int32": "Int32Value",
    "int64": "Int64Value",
    "uint32": "UInt32Value",
    "fixed32": "UInt32Value",
    "uint64": "UInt64Value",
    "fixed64": "UInt64Value",
    "float": "FloatValue",
    "double": "DoubleValue",
    "bool": "BoolValue",
    "string": "StringValue",
    "bytes": "BytesValue",
}
LOGICAL = {
    DECIMAL_NAME: ("confluent.type.Decimal", "confluent/type/decimal.proto"),
    DATE_NAME: ("google.type.Date", "google/type/date.proto"),
    TIME_NAME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
    TIMESTAMP_NAME: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}
WRAPPER_FILE, META_FILE = "google/protobuf/wrappers.proto", "confluent/meta.proto"
PRECISION = "connect.decimal.precision"


@dataclass(frozen=True, slots=True)
class ProtobufNaming:
    """What the converter's settings say of the files that it makes.

    Attributes:
        scrubs: Characters that Protobuf's names cannot have are replaced (``scrub.invalid.names``).
        optional: Nullable fields have the word ``optional`` (``optional.for.nullables``).
        wraps: Nullable fields are messages such as ``StringValue`` (``wrapper.for.nullables``).
    """

    scrubs: bool = False
    optional: bool = False
    wraps: bool = False


def protobuf_file(schema: Schema, naming: ProtobufNaming) -> tuple[str, str]:
    """The file of a schema, as a descriptor in base64, and the full name of its message.

    Raises:
        DataError: Protobuf has no form for the schema.

    Example:
        >>> from penstock.connect.data import INT32, struct
        >>> protobuf_file(struct({"a": INT32}, name="org.example.Line"), ProtobufNaming())[1]
        'org.example.Line'
    """
    if schema.type in (Type.ARRAY, Type.MAP) or (schema.type is Type.STRUCT and _is_union(schema)):
        raise DataError(
            f"Unsupported root schema of type {schema.type}",
            hint="Protobuf's messages are structs: put the value into a field, as the transformation HoistField does.",
        )
    if schema.type is not Type.STRUCT:
        name, path = LOGICAL.get(schema.name or "", (f"google.protobuf.{WRAPPERS[SCALARS[schema.type]]}", WRAPPER_FILE))
        return _known_file(path), name
    return _Maker(naming).file(schema)


def field_name(name: str, naming: ProtobufNaming) -> str:
    """The name that a field has in a message.

    >>> field_name("a-b", ProtobufNaming(scrubs=True)), field_name("_é", ProtobufNaming(scrubs=True))
    ('a_b', 'x__C3_A9')
    """
    if not naming.scrubs or re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name):
        return name
    encoded = quote_plus(name, safe="*")
    return re.sub("[^A-Za-z0-9_]", "_", f"x{encoded}" if encoded[0] in "0123456789_" else encoded)


def _is_union(schema: Schema) -> bool:
    return (schema.name or "").startswith(UNION)


def _known_file(path: str) -> str:
    from penstock.serde.schemas.proto_classes import known_file

    return base64.b64encode(known_file(path).SerializeToString(deterministic=True)).decode()


class _Maker:
    """Makes one file."""

    def __init__(self, naming: ProtobufNaming) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        self._naming = naming
        self._file: Any = FileDescriptorProto(syntax="proto3")
        self._unnamed = 0

    def file(self, schema: Schema) -> tuple[str, str]:
        package, _, name = self._or_default(schema.name).rpartition(".")
        name = field_name(name, self._naming)
        full = f"{package}.{name}" if package else name
        self._file.name = f"{full.replace('.', '/')}.proto"
        if package:
            self._file.package = package
        made = self._file.message_type.add(name=name)
        self._fields(made, f".{full}", schema)
        return base64.b64encode(self._file.SerializeToString(deterministic=True)).decode(), full

    def _or_default(self, name: str | None) -> str:
        if name:
            return name
        self._unnamed += 1
        return f"ConnectDefault{self._unnamed}"

    def _short(self, name: str | None) -> str:
        return field_name(self._or_default(name).rpartition(".")[2], self._naming)

    def _imports(self, path: str) -> None:
        if path not in self._file.dependency:
            self._file.dependency.append(path)

    def _fields(self, made: Any, path: str, schema: Schema) -> None:
        following = 1
        for part in schema.fields:
            tag = _tag(part.schema)
            if tag is None:
                tag, following = following, following + 1
            if part.schema.type is Type.STRUCT and _is_union(part.schema):
                self._oneof(made, path, part.schema)
                continue
            field = self._field(made, path, (field_name(part.name, self._naming), part.schema, tag))
            if field.proto3_optional:
                field.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{field.name}")
        real = [one for one in made.oneof_decl if not one.name.startswith("_")]
        if len(real) != len(made.oneof_decl):  # descriptors have synthetic oneofs behind the real ones
            _reorder(made)

    def _oneof(self, made: Any, path: str, schema: Schema) -> None:
        index = len(made.oneof_decl)
        made.oneof_decl.add(name=self._short((schema.name or "").removeprefix(f"{UNION}.")))
        for part in schema.fields:
            tag = _tag(part.schema)
            if tag is None:
                raise DataError(
                    f"the field {part.name} of the union {schema.name} has no number",
                    hint=f"Set its parameter {TAG}, as schemas that are read from the registry have it.",
                )
            field = self._field(made, path, (field_name(part.name, self._naming), part.schema, tag))
            field.ClearField("proto3_optional")
            field.oneof_index = index

    def _field(self, made: Any, path: str, of: tuple[str, Schema, int]) -> Any:
        name, schema, number = of
        field = made.field.add(name=name, number=number, label=OPTIONAL)
        if schema.type in (Type.ARRAY, Type.MAP):
            field.label = REPEATED
        elif self._naming.optional and schema.optional:
            field.proto3_optional = True
        if schema.type is Type.ARRAY:
            if schema.values is None or schema.values.type in (Type.ARRAY, Type.MAP):
                raise DataError(
                    f"the field {name} is an array of arrays or maps, which Protobuf cannot repeat",
                    hint="Make the elements structs with one field.",
                )
            schema = schema.values
        parameters = self._type(made, path, field, schema)
        if parameters:
            set_parameters(field, parameters)
            self._imports(META_FILE)
        return field

    def _type(self, made: Any, path: str, field: Any, schema: Schema) -> dict[str, str]:
        """Set the type of a field; return Confluent's parameters of it."""
        given: Mapping[str, str] = schema.parameters or {}
        if schema.name in LOGICAL:
            kind, source = LOGICAL[schema.name]
            field.type, field.type_name = MESSAGE_TYPE, f".{kind}"
            self._imports(source)
            if schema.name != DECIMAL_NAME:
                return {}
            found = {"precision": given.get(PRECISION), "scale": given.get("scale")}
            return {name: value for name, value in found.items() if value is not None}
        if ENUM in given:
            name = given[ENUM]
            field.type, field.type_name = ENUM_TYPE, f"{path}.{name}"
            if all(one.name != name for one in made.enum_type):
                made_enum = made.enum_type.add(name=name)
                symbols = ((key.removeprefix(f"{ENUM}."), value) for key, value in given.items() if key != ENUM)
                for symbol, value in symbols:
                    if symbol != TAG and not symbol.startswith(NAMESPACE):
                        made_enum.value.add(name=symbol, number=int(value))
            return {}
        if schema.type is Type.STRUCT:
            self._message(made, path, field, schema)
            return {}
        if schema.type is Type.MAP:
            self._map(made, path, field, schema)
            return {}
        kind = (
            given.get(TYPE, SCALARS[schema.type]) if schema.type in (Type.INT32, Type.INT64) else SCALARS[schema.type]
        )
        if self._naming.wraps and schema.optional:
            field.type, field.type_name = MESSAGE_TYPE, f".google.protobuf.{WRAPPERS.get(kind, WRAPPERS['int64'])}"
            self._imports(WRAPPER_FILE)
        else:
            field.type = NUMBERS[kind]
        return {"connect.type": schema.type.value} if schema.type in (Type.INT8, Type.INT16) else {}

    def _message(self, made: Any, path: str, field: Any, schema: Schema) -> None:
        name = self._short(schema.name)
        if name == field.name:
            name += "Message"
        field.type, field.type_name = MESSAGE_TYPE, f"{path}.{name}"
        if all(one.name != name for one in made.nested_type):
            self._fields(made.nested_type.add(name=name), f"{path}.{name}", schema)

    def _map(self, made: Any, path: str, field: Any, schema: Schema) -> None:
        if schema.keys is None or schema.values is None:
            raise DataError(f"the map {field.name} has keys or values without schema")
        name = self._short(schema.name)
        if "_" in name:
            name = "".join(word.capitalize() for word in name.split("_"))
        name += "Entry"
        field.type, field.type_name = MESSAGE_TYPE, f"{path}.{name}"
        if any(one.name == name for one in made.nested_type):
            return
        entry = made.nested_type.add(name=name)
        self._field(entry, f"{path}.{name}", ("key", schema.keys, 1))
        self._field(entry, f"{path}.{name}", ("value", schema.values, 2))
        for part in entry.field:
            part.ClearField("proto3_optional")


def _tag(schema: Schema) -> int | None:
    text = (schema.parameters or {}).get(TAG)
    return None if text is None else int(text)


def _reorder(made: Any) -> None:
    old = list(made.oneof_decl)
    synthetic = {field.oneof_index for field in made.field if field.proto3_optional}
    order = sorted(range(len(old)), key=lambda index: (index in synthetic, index))
    for field in made.field:
        if field.HasField("oneof_index"):
            field.oneof_index = order.index(field.oneof_index)
    names = [old[index].name for index in order]
    del made.oneof_decl[:]
    for name in names:
        made.oneof_decl.add(name=name)
