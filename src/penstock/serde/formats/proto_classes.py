"""Classes of Protobuf messages, made of schemas in either form: the text of a file or its descriptor in base64."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any

from penstock.serde.formats.schema_text import SchemaText

__all__ = ["known_file", "message_at", "message_class", "message_class_at", "name_at", "proto_file", "set_parameters"]

TOKEN = re.compile(
    r"""\s*(?:(?P<skip>//[^\n]*|/\*.*?(?:\*/|\Z))"""  # what has no end goes to the end: each sign is looked at once
    r"""|(?P<text>"(?:[^"\\]|\\.)*(?:"|\\?\Z)|'(?:[^'\\]|\\.)*(?:'|\\?\Z))"""
    r"""|(?P<word>\.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*|-?[0-9][A-Za-z0-9_.+-]*)|(?P<sign>[^\s]))""",
    re.DOTALL,
)
PAIR = re.compile(r"""key\s*:\s*"(\w+)"\s*,?\s*value\s*:\s*"([^"]*)"|value\s*:\s*"([^"]*)"\s*,?\s*key\s*:\s*"(\w+)\"""")
SCALARS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
OPTIONAL, REQUIRED, REPEATED = 1, 2, 3
LABELS = {"optional": OPTIONAL, "required": REQUIRED, "repeated": REPEATED}
DEPTH = 50  # of messages in each other


@dataclass(slots=True)
class ProtoFile:
    """A parsed file.

    Attributes:
        descriptor: Its ``FileDescriptorProto``; names of types are as they are written.
        parameters: Confluent's parameters of fields (``precision``, ``scale``), by message and field.
    """

    descriptor: Any
    parameters: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)


def parse_proto(text: str, name: str) -> ProtoFile:
    """Parse a file.

    >>> parse_proto('syntax = "proto3"; message Hit { int32 status = 1; }', "hit.proto").descriptor.message_type[0].name
    'Hit'

    Raises:
        ValueError: The text is not such a file.
    """
    return _ProtoParser(text, name).file()


class _ProtoParser:
    def __init__(self, text: str, name: str) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        self._text = text
        self._tokens = [match for match in TOKEN.finditer(text) if not match["skip"]]
        self._at = 0
        self._file = ProtoFile(FileDescriptorProto(name=name))

    def peek(self) -> str:
        if self._at >= len(self._tokens):
            return ""
        match = self._tokens[self._at]
        return match[match.lastgroup or 0]

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise ValueError(f"expected {expected or 'more'}, found {token or 'the end'} in a .proto text")
        self._at += 1
        return token

    def accept(self, expected: str) -> bool:
        if self.peek() != expected:
            return False
        self._at += 1
        return True

    def skip(self, end: str) -> None:
        """Skip what is not needed, with the brackets in it, up to and with a sign."""
        depth = 0
        while depth or self.peek() != end:
            token = self.take()
            depth += (token in ("{", "[", "(")) - (token in ("}", "]", ")"))
        self.take(end)

    def quoted(self) -> str:
        return self.take()[1:-1]

    def number(self) -> int:
        token = self.take()
        try:
            return int(token, 0)
        except ValueError as error:
            raise ValueError(f"expected a number, found {token} in a .proto text") from error

    def file(self) -> ProtoFile:
        descriptor = self._file.descriptor
        while word := self.peek():
            self.take()
            if word == "syntax":
                self.take("=")
                descriptor.syntax = self.quoted()
                self.take(";")
            elif word == "package":
                descriptor.package = self.take()
                self.take(";")
            elif word == "import":
                while self.peek() in ("public", "weak"):
                    self.take()
                descriptor.dependency.append(self.quoted())
                self.take(";")
            elif word == "message":
                self.message(descriptor.message_type.add(), "", 0)
            elif word == "enum":
                self.enum(descriptor.enum_type.add())
            elif word == "service":
                self.take()
                self.take("{")
                self.skip("}")
            elif word == "option":
                self.skip(";")
            elif word != ";":
                raise ValueError(f"{word!r} stands where a message is expected in a .proto text")
        return self._file

    def enum(self, descriptor: Any) -> None:
        descriptor.name = self.take()
        self.take("{")
        while not self.accept("}"):
            name = self.take()
            if name in ("option", "reserved"):
                self.skip(";")
            elif name != ";":
                self.take("=")
                descriptor.value.add(name=name, number=self.number())
                self.skip(";")

    def message(self, descriptor: Any, around: str, depth: int) -> None:
        if depth > DEPTH:
            raise ValueError(f"messages are nested more than {DEPTH} times in a .proto text")
        descriptor.name = self.take()
        path = f"{around}{descriptor.name}"
        self.take("{")
        while not self.accept("}"):
            word = self.peek()
            if word == "message":
                self.take()
                self.message(descriptor.nested_type.add(), f"{path}.", depth + 1)
            elif word == "enum":
                self.take()
                self.enum(descriptor.enum_type.add())
            elif word in ("option", "reserved", "extensions"):
                self.skip(";")
            elif word == "oneof":
                self.oneof(descriptor, path)
            elif not self.accept(";"):
                self.field(descriptor, path, None)
        # behind all others, as Java's clients do not count them in the places of messages
        descriptor.nested_type.sort(key=lambda inner: inner.options.map_entry)
        self.synthetic(descriptor)

    def oneof(self, descriptor: Any, path: str) -> None:
        self.take("oneof")
        index = len(descriptor.oneof_decl)
        descriptor.oneof_decl.add(name=self.take())
        self.take("{")
        while not self.accept("}"):
            if self.peek() == "option":
                self.skip(";")
            elif not self.accept(";"):
                self.field(descriptor, path, index)

    def field(self, descriptor: Any, path: str, oneof: int | None) -> None:
        one = descriptor.field.add(label=OPTIONAL)
        label = self.take() if self.peek() in LABELS else ""
        one.label = LABELS.get(label, OPTIONAL)
        finish: Callable[[], None] = lambda: None  # noqa: E731
        if self.peek() == "map":
            finish = self.map(descriptor, one)
        else:
            self.type(one)
        one.name = self.take()
        finish()
        self.take("=")
        one.number = self.number()
        if oneof is not None:
            one.oneof_index = oneof
        one.proto3_optional = label == "optional" and self._file.descriptor.syntax == "proto3"
        start = self._tokens[self._at].start() if self._at < len(self._tokens) else 0
        self.skip(";")
        options = self._text[start : self._tokens[self._at - 1].start()]
        if parameters := {a or d: b or c for a, b, c, d in PAIR.findall(options)}:
            self._file.parameters[path, one.name] = parameters

    def type(self, one: Any) -> None:
        word = self.take()
        if word in SCALARS:
            one.type = SCALARS[word]
        else:
            one.type_name = word

    def map(self, descriptor: Any, one: Any) -> Callable[[], None]:
        self.take("map")
        self.take("<")
        entry = descriptor.nested_type.add()
        entry.options.map_entry = True
        for number, name in enumerate(("key", "value"), 1):
            part = entry.field.add(name=name, number=number, label=OPTIONAL)
            self.type(part)
            self.take("," if number == 1 else ">")
        one.label = REPEATED

        def finish() -> None:
            entry.name = "".join(word[:1].upper() + word[1:] for word in one.name.split("_")) + "Entry"
            one.type_name = entry.name

        return finish

    @staticmethod
    def synthetic(descriptor: Any) -> None:
        """Put each ``optional`` field of proto3 into a oneof of its own, as descriptors have them."""
        for one in descriptor.field:
            if one.proto3_optional:
                one.oneof_index = len(descriptor.oneof_decl)
                descriptor.oneof_decl.add(name=f"_{one.name}")


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
        for each in message.field:
            if options := each.options.SerializeToString():
                parameters[path, each.name] = dict(_meta().FromString(options).meta.params)
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
