"""Classes of Protobuf messages, made of schemas in either form: the text of a file or its descriptor in base64."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

from penstock.serde.formats.proto_text import ProtoFile, parse_proto
from penstock.serde.formats.schema_text import SchemaText

__all__ = ["known_file", "message_at", "message_class", "message_class_at", "name_at", "proto_file", "set_parameters"]

KNOWN = {
    "google/type/date.proto": 'syntax = "proto3"; package google.type; '
    "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "google/type/timeofday.proto": 'syntax = "proto3"; package google.type; '
    "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }",
    "confluent/type/decimal.proto": 'syntax = "proto3"; package confluent.type; '
    "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    "confluent/meta.proto": 'syntax = "proto3"; package confluent;',
}


@lru_cache(maxsize=256)
def message_class(schema: SchemaText, name: str | None) -> tuple[Any, dict[tuple[str, str], dict[str, str]]]:
    """Return the class of a message of a schema, by its full name or the first one, and the parameters of fields.

    Raises:
        ValueError: The text is not a Protobuf file, or has no such message.
    """
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    referred = dict(schema.referred)
    file = proto_file(schema.text)
    parameters = dict(file.parameters)
    added: set[str] = set()
    try:
        for path in file.descriptor.dependency:
            _add(pool, path, referred, added, parameters)
        pool.Add(file.descriptor)
        messages = file.descriptor.message_type
        if not messages:
            raise ValueError("a Protobuf schema has no message")
        prefix = f"{file.descriptor.package}." if file.descriptor.package else ""
        descriptor = pool.FindMessageTypeByName(name or f"{prefix}{messages[0].name}")
    except (TypeError, KeyError) as error:
        raise ValueError(f"{name or 'a message'} cannot be made of a Protobuf schema: {error}") from error
    return message_factory.GetMessageClass(descriptor), parameters


def message_at(schema: SchemaText, indexes: Sequence[int]) -> str:
    """Return the full name of the message at a place of a file.

    Its number, or those of the messages around it and its own.

    >>> message_at(SchemaText("package a; message B {} message C { message D {} }", "PROTOBUF"), [1, 0])
    'a.C.D'

    Raises:
        ValueError: The text is not a Protobuf file, or has no such message.
    """
    return name_at(proto_file(schema.text), indexes)


def name_at(file: ProtoFile, indexes: Sequence[int]) -> str:
    """Return the full name of the message at a place of a file; see `message_at`.

    Raises:
        ValueError: There is none.
    """
    package, messages = file.descriptor.package, file.descriptor.message_type
    names = [package] if package else []
    for number in indexes:
        if not 0 <= number < len(messages):
            raise ValueError(f"a Protobuf schema has no message at {list(indexes)}")
        names.append(messages[number].name)
        messages = messages[number].nested_type
    return ".".join(names)


@lru_cache(maxsize=256)
def message_class_at(schema: SchemaText, indexes: tuple[int, ...]) -> Any:
    """Return the class of the message at a place of a file, made once per process; see `message_at`."""
    return message_class(schema, message_at(schema, indexes))[0]


@lru_cache(maxsize=1)
def _meta() -> Any:
    """Return a message with Confluent's ``field_meta`` in the place that it has among the options of a field."""
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    text = 'syntax = "proto3"; message Options { Meta meta = 1088; message Meta { map<string, string> params = 2; } }'
    pool.Add(parse_proto(text, "meta.proto").descriptor)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Options"))


def set_parameters(field: Any, parameters: Mapping[str, str]) -> None:
    """Write Confluent's parameters (``precision``, ``scale``, ``connect.type``) into the options of a field."""
    options = _meta()()
    options.meta.params.update(parameters)
    field.options.MergeFromString(options.SerializeToString(deterministic=True))


def _collect(prefix: str, messages: Any, parameters: dict[tuple[str, str], dict[str, str]]) -> None:
    for message in messages:
        path = f"{prefix}{message.name}"
        for field in message.field:
            if options := field.options.SerializeToString():
                parameters[path, field.name] = dict(_meta().FromString(options).meta.params)
        _collect(f"{path}.", message.nested_type, parameters)


def proto_file(text: str, name: str = "schema.proto") -> ProtoFile:
    """Return the file of a text of either form; names of types are as they are written.

    Raises:
        ValueError: It is neither a ``.proto`` text nor a descriptor in base64.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return parse_proto(text, name)
    parsed_file = ProtoFile(file)
    _collect("", file.message_type, parsed_file.parameters)
    return parsed_file


def _add(pool: Any, path: str, referred: dict[str, str], added: set[str], parameters: dict[Any, Any]) -> None:
    if path in added:
        return
    added.add(path)
    if path in referred:
        file = proto_file(referred[path], path)
        file.descriptor.name = path
        parameters.update(file.parameters)
        descriptor = file.descriptor
    else:
        descriptor = known_file(path)
    for other in descriptor.dependency:
        _add(pool, other, referred, added, parameters)
    pool.Add(descriptor)


def known_file(path: str) -> Any:
    """Return the descriptor of a file of Google's or Confluent's that needs no reference.

    Raises:
        ValueError: There is none at this path.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if path in KNOWN:
        return parse_proto(KNOWN[path], path).descriptor
    if not path.startswith("google/protobuf/"):
        raise ValueError(f"a Protobuf schema imports {path}, which is not among its references")
    try:
        module = import_module(f"{path.removesuffix('.proto').replace('/', '.')}_pb2")
    except ImportError as error:
        raise ValueError(f"a Protobuf schema imports {path}, which is not known") from error
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
