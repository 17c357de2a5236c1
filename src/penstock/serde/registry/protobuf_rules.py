"""Compatibility rules for Protobuf: fields are identified by their numbers, and a number must keep its wire type.

Descriptors in base64, which Python's clients send, and ``.proto`` texts, which those of Java send, are compared alike.
A text with parts that the parser here does not know is kept as it is, and never found incompatible.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any

from penstock.serde.formats.proto_classes import message_class
from penstock.serde.formats.schema_text import SchemaText

__all__ = ["ProtobufSchema", "protobuf_differences"]

_PROTO_TEXT = re.compile(r"\b(syntax|message|enum|package|edition)\b")
_REPEATED, _REQUIRED = 3, 2
_GROUPS = (
    {"int32", "uint32", "int64", "uint64", "bool", "enum"},
    {"sint32", "sint64"},
    {"fixed32", "sfixed32"},
    {"fixed64", "sfixed64"},
    {"string", "bytes"},
)


@dataclass(frozen=True)
class ProtobufSchema:
    """A Protobuf file; ``descriptor`` is None if its text cannot be parsed."""

    text: str
    descriptor: Any

    @classmethod
    def of(cls, schema: SchemaText) -> ProtobufSchema:
        """Parse a schema of either form.

        Raises:
            ValueError: The text has neither form.
        """
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.message import DecodeError

        if _PROTO_TEXT.search(schema.text):
            return cls(schema.text, _resolved(schema))
        try:
            return cls(schema.text, FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True)))
        except (binascii.Error, DecodeError) as error:
            raise ValueError("neither a .proto text nor a file descriptor in base64") from error

    def messages(self) -> dict[str, Any]:
        """Collect all messages by their names within the package."""
        messages: dict[str, Any] = {}

        def visit(prefix: str, message: Any) -> None:
            name = f"{prefix}{message.name}"
            messages[name] = message
            for inner in message.nested_type:
                visit(f"{name}.", inner)

        for message in self.descriptor.message_type:
            visit("", message)
        return messages


def _resolved(schema: SchemaText) -> Any:
    """Return the descriptor of a text, with the full names of types; None if it cannot be made."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    descriptor = FileDescriptorProto()
    try:
        message_class(schema, None)[0].DESCRIPTOR.file.CopyToProto(descriptor)
    except ValueError:
        return None
    return descriptor


def protobuf_differences(new: ProtobufSchema, old: ProtobufSchema) -> list[str]:
    """List the reasons why messages of the old schema cannot be read with the new one."""
    if new.descriptor is None or old.descriptor is None:
        return []
    problems: list[str] = []
    if new.descriptor.package != old.descriptor.package:
        problems.append(f"package changed from {old.descriptor.package!r} to {new.descriptor.package!r}")
    messages = new.messages()
    for name, before in old.messages().items():
        now = messages.get(name)
        if now is None:
            problems.append(f"{name}: the message is gone")
        else:
            problems += _fields(name, now, before)
    return problems


def _fields(message: str, now: Any, before: Any) -> list[str]:
    problems: list[str] = []
    fields = {field.number: field for field in now.field}
    written = {field.number: field for field in before.field}
    for number, old in written.items():
        new = fields.get(number)
        path = f"{message}.{old.name}"
        if new is None:
            if old.label == _REQUIRED:
                problems.append(f"{path}: the required field is gone")
            elif _oneof(old, before) is not None and _oneof(old, before) in _oneofs(now):
                problems.append(f"{path}: the field of a oneof is gone")
            continue
        if _kind(old) != _kind(new) and not any({_kind(old), _kind(new)} <= group for group in _GROUPS):
            problems.append(f"{path}: the type of field {number} changed from {_kind(old)} to {_kind(new)}")
        if (old.label == _REPEATED) != (new.label == _REPEATED) and _kind(old) not in {"string", "bytes"}:
            problems.append(f"{path}: field {number} changed between repeated and single")
        if _oneof(old, before) is None and _oneof(new, now) in _oneofs(before) and _oneof(new, now) is not None:
            problems.append(f"{path}: the field moved into the oneof {_oneof(new, now)!r}")
    problems += [
        f"{message}.{new.name}: a new field is required"
        for number, new in fields.items()
        if number not in written and new.label == _REQUIRED
    ]
    return problems


def _kind(field: Any) -> str:
    """Return the name of a field's type; for messages, the name of the message."""
    name = str(type(field).Type.Name(field.type)).removeprefix("TYPE_").lower()
    return field.type_name if name in {"message", "group"} else name


def _oneof(field: Any, message: Any) -> str | None:
    if not field.HasField("oneof_index") or field.proto3_optional:
        return None
    return str(message.oneof_decl[field.oneof_index].name)


def _oneofs(message: Any) -> set[str | None]:
    return {declared.name for declared in message.oneof_decl}
