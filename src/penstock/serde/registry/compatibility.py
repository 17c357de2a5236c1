"""Compatibility of schemas: whether data written with one can be read with another, for all kinds of schemas.

Avro has its rules of schema resolution. In Protobuf fields are identified by their numbers, and a number must keep its
wire type. Descriptors in base64, which Python's clients send, and ``.proto`` texts, which those of Java send, are
compared alike. A text with parts that the parser here does not know is kept as it is, and never found incompatible.

Under a JSON Schema all documents of the old schema must be valid: the rules compare types, values, bounds, properties,
items and combinations keyword by keyword, as Confluent's do. A keyword that no rule covers must be the same in both.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.serde.formats.avro import ParsedSchema, parse_avro
from penstock.serde.formats.json_schema import part_at
from penstock.serde.formats.proto_classes import message_class
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.registry.avro_validity import check_avro
from penstock.serde.registry.model import Reference, StoredSchema, parse_json, refused

__all__ = ["ProtobufSchema", "Resolve", "avro_differences", "check_new", "differences", "protobuf_differences"]

# JSON Schema

_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_EXACT = ("pattern", "multipleOf", "uniqueItems", "not", "if", "then", "else", "patternProperties", "dependencies")
_NESTING = 40
_MOST_COMPARISONS = 50_000


def json_differences(new: Any, old: Any) -> list[str]:
    """List the reasons why the new schema rejects documents of the old one, each with its place.

    Raises:
        ValueError: The schemas have so many combinations that comparing them would take too long.
    """
    return _JsonComparison(new, old).compare(new, old, "#", 0)


def _types(schema: dict[str, Any]) -> set[str] | None:
    kinds = schema.get("type")
    if kinds is None:
        return None
    return {kinds} if isinstance(kinds, str) else set(kinds)


class _JsonComparison:
    """A comparison of two documents; each pair of their parts once, as parts may refer to each other in circles.

    A pair that is being compared counts as compatible: its differences are reported at the place where its comparison
    began. Results that rest on this assumption are dropped when it turns out wrong.
    """

    def __init__(self, new: Any, old: Any) -> None:
        self._new = new
        self._old = old
        self._problems: dict[
            tuple[int, int], tuple[Any, Any, list[str]]
        ] = {}  # by identity, so the parts are kept, too
        self._compatible: list[tuple[int, int]] = []
        self._compared = 0

    def compare(self, new: Any, old: Any, path: str, depth: int) -> list[str]:
        new, old = _dereferenced(new, self._new), _dereferenced(old, self._old)
        pair = (id(new), id(old))
        compared = self._problems.get(pair)
        if compared is not None:
            return compared[2]
        self._compared += 1
        if self._compared > _MOST_COMPARISONS:
            raise ValueError(f"they combine in more than {_MOST_COMPARISONS:,} ways; split the schema")
        assumed = len(self._compatible)
        self._problems[pair] = (new, old, [])
        self._compatible.append(pair)
        problems = self._differences(new, old, path, depth)
        if problems:
            for doubtful in self._compatible[assumed:]:
                self._problems.pop(doubtful, None)
            del self._compatible[assumed:]
            self._problems[pair] = (new, old, problems)
        return problems

    def _differences(self, new: Any, old: Any, path: str, depth: int) -> list[str]:
        if new in (True, {}) or old is False or new == old or depth > _NESTING:
            return []
        if new is False:
            return [f"{path}: everything is refused now"]
        old = {} if old is True else old
        combined = self._combined(new, old, path, depth)
        if combined is not None:
            return combined
        return [
            *_type_changes(new, old, path),
            *_value_changes(new, old, path),
            *_bound_changes(new, old, path),
            *self._objects(new, old, path, depth),
            *self._arrays(new, old, path, depth),
        ]

    def _combined(self, new: Any, old: Any, path: str, depth: int) -> list[str] | None:
        """Compare alternatives: each old one must fit one of the new; return None if neither schema has any."""
        new_key, old_key = _alternatives(new), _alternatives(old)
        if new_key is None and old_key is None:
            return None
        if "allOf" in (new_key, old_key):
            if new_key != old_key:
                return [f"{path}: combination changed from {old_key} to {new_key}"]
            return self._each(
                new["allOf"], old["allOf"], path, lambda n, o: not self.compare(n, o, path, depth + 1), swapped=True
            )
        news, olds = (new[new_key] if new_key else [new]), (old[old_key] if old_key else [old])
        return self._each(news, olds, path, lambda n, o: not self.compare(n, o, path, depth + 1), swapped=False)

    def _each(
        self, news: list[Any], olds: list[Any], path: str, fits: Callable[[Any, Any], bool], *, swapped: bool
    ) -> list[str]:
        if swapped:
            return [
                f"{path}: part {number} of the combination is new"
                for number, new in enumerate(news)
                if not any(fits(new, old) for old in olds)
            ]
        return [
            f"{path}: alternative {number} is no longer allowed"
            for number, old in enumerate(olds)
            if not any(fits(new, old) for new in news)
        ]

    def _objects(self, new: Any, old: Any, path: str, depth: int) -> list[str]:
        have, had = new.get("properties", {}), old.get("properties", {})
        problems = [
            f"{path}/required: property {name!r} is required now"
            for name in new.get("required", [])
            if name not in old.get("required", []) and not _has_default(_dereferenced(have.get(name, {}), self._new))
        ]
        rest, old_rest = new.get("additionalProperties", True), old.get("additionalProperties", True)
        for name, schema in have.items():
            here = f"{path}/properties/{name}"
            if name in had:
                problems += self.compare(schema, had[name], here, depth + 1)
            elif old_rest is not False and self.compare(schema, old_rest, here, depth + 1):
                problems.append(f"{here}: the old schema allowed any property of this name")
        for name, schema in had.items():
            if name not in have and self.compare(rest, schema, f"{path}/additionalProperties", depth + 1):
                problems.append(f"{path}/properties/{name}: the property is no longer allowed")
        return problems + self.compare(rest, old_rest, f"{path}/additionalProperties", depth + 1)

    def _arrays(self, new: Any, old: Any, path: str, depth: int) -> list[str]:
        items, old_items = new.get("items", True), old.get("items", True)
        if isinstance(items, list) or isinstance(old_items, list):
            return [] if items == old_items else [f"{path}/items: the list of items changed"]
        return self.compare(items, old_items, f"{path}/items", depth + 1)


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _alternatives(schema: dict[str, Any]) -> str | None:
    return next((key for key in ("oneOf", "anyOf", "allOf") if key in schema), None)


def _dereferenced(schema: Any, root: Any) -> Any:
    """Resolve a ``$ref`` within the document or to a registered reference."""
    for _ in range(_NESTING):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        target = str(schema["$ref"])
        others = root.get("$penstock:references", {}) if isinstance(root, dict) else {}
        if target in others:
            return others[target]
        if not target.startswith("#"):
            return schema
        part = part_at(root, target.lstrip("#"))
        schema = part if isinstance(part, dict | bool) else {}
    return schema


def _type_changes(new: dict[str, Any], old: dict[str, Any], path: str) -> list[str]:
    now, before = _types(new), _types(old)
    if now is None:
        return []
    if before is None:
        return [f"{path}/type: narrowed to {', '.join(sorted(now))}"]
    lost = {kind for kind in before if kind not in now and not (kind == "integer" and "number" in now)}
    return [f"{path}/type: {', '.join(sorted(lost))} is no longer allowed"] if lost else []


def _value_changes(new: dict[str, Any], old: dict[str, Any], path: str) -> list[str]:
    now, before = _values(new), _values(old)
    if now is None:
        return []
    if before is None:
        return [f"{path}/enum: narrowed to {len(now)} values"]
    lost = sorted(before - now)
    return [f"{path}/enum: {', '.join(lost)} is no longer allowed"] if lost else []


def _values(schema: dict[str, Any]) -> set[str] | None:
    if "const" in schema:
        return {json.dumps(schema["const"], sort_keys=True)}
    if "enum" in schema:
        return {json.dumps(value, sort_keys=True) for value in schema["enum"]}
    return None


def _bound_changes(new: dict[str, Any], old: dict[str, Any], path: str) -> list[str]:
    problems = [f"{path}/{key}: changed" for key in _EXACT if key in new and new[key] != old.get(key)]
    return [*problems, *_tighter(new, old, path, _UPPER, 1), *_tighter(new, old, path, _LOWER, -1)]


def _tighter(new: dict[str, Any], old: dict[str, Any], path: str, keys: Iterable[str], sign: int) -> list[str]:
    return [
        f"{path}/{key}: tightened to {new[key]}"
        for key in keys
        if key in new and (key not in old or new[key] * sign < old[key] * sign)
    ]


# Versions of a subject

Resolve = Callable[[Reference], StoredSchema]
_MOST_REFERENCES = 100
# What parsers and rules raise over a text that is JSON but no valid schema.
_UNFIT = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, ArithmeticError)


def parsed(schema: StoredSchema, resolve: Resolve) -> Any:
    """Parse a schema into the form that the rules of its kind compare.

    Raises:
        SchemaRegistryError: 42201, the text is not a schema of this kind.
    """
    try:
        if schema.kind == "AVRO":
            return _avro(schema.text, schema, resolve)
        if schema.kind == "JSON":
            return _json(schema, resolve)
        if schema.kind == "PROTOBUF":
            names = {reference.name: target.text for reference, target in _referred(schema, resolve).items()}
            return ProtobufSchema.of(SchemaText(schema.text, "PROTOBUF", tuple(names.items())))
    except _UNFIT as error:
        details = str(error)[:500] or type(error).__name__
        raise refused(422, 42201, f"Invalid schema {schema.text[:200]}, details: {details}") from error
    raise refused(422, 42201, f"Invalid schema type {schema.kind}")


def check_new(schema: StoredSchema, resolve: Resolve) -> None:
    """Refuse a schema that breaks a rule of its kind; those that were registered before are taken as they are.

    Raises:
        SchemaRegistryError: 42201, it does.
    """
    try:
        if schema.kind == "AVRO":
            check_avro(parse_json(schema.text), _avro('"null"', schema, resolve).names)
    except _UNFIT as error:
        details = str(error)[:500] or type(error).__name__
        raise refused(422, 42201, f"Invalid schema {schema.text[:200]}, details: {details}") from error
    parsed(schema, resolve)


def differences(reader: StoredSchema, writer: StoredSchema, resolve: Resolve) -> list[str]:
    """List the reasons why ``reader`` cannot read what ``writer`` wrote; empty if it can."""
    if reader.kind != writer.kind:
        return [f"schema type changed from {writer.kind} to {reader.kind}"]
    new, old = parsed(reader, resolve), parsed(writer, resolve)
    rules: dict[str, Callable[[Any, Any], list[str]]] = {
        "AVRO": avro_differences, "JSON": json_differences, "PROTOBUF": protobuf_differences,
    }  # fmt: skip
    try:
        return rules[reader.kind](new, old)
    except _UNFIT as error:
        details = str(error)[:500] or type(error).__name__
        raise refused(422, 42201, f"The schemas cannot be compared, details: {details}") from error


def _avro(text: str, schema: StoredSchema, resolve: Resolve) -> ParsedSchema:
    """Parse an Avro text among the types that a schema refers to."""
    texts = dict.fromkeys(target.text for target in _referred(schema, resolve).values())
    for each in (*texts, text):
        parse_json(each)
    return parse_avro(SchemaText(text, "AVRO", tuple(("", each) for each in texts)))


def _referred(schema: StoredSchema, resolve: Resolve) -> dict[Reference, StoredSchema]:
    """Collect all schemas that this one refers to, directly or not, each after those that it refers to itself.

    Raises:
        ValueError: The references form a circle, or are too many.
    """
    targets: dict[Reference, StoredSchema] = {}
    open_ones: list[Reference] = []

    def visit(one: StoredSchema) -> None:
        for reference in one.references:
            if reference in targets:
                continue
            if reference in open_ones:
                raise ValueError(f"the reference {reference.name!r} leads back to itself")
            if len(targets) + len(open_ones) >= _MOST_REFERENCES:
                raise ValueError(f"it builds on more than {_MOST_REFERENCES} other schemas")
            open_ones.append(reference)
            target = resolve(reference)
            visit(target)
            targets[reference] = target
            open_ones.pop()

    visit(schema)
    return targets


def _json(schema: StoredSchema, resolve: Resolve) -> Any:
    """Parse a JSON schema, with the schemas that it refers to under a key of their own."""
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    def checked(one: StoredSchema) -> Any:
        document = parse_json(one.text)
        try:
            validator_for(document).check_schema(document)
        except SchemaError as error:
            raise ValueError(error.message) from error
        return document

    document = checked(schema)
    others = {reference.name: checked(target) for reference, target in _referred(schema, resolve).items()}
    if others and isinstance(document, dict):
        document = {**document, "$penstock:references": others}
    return document


# Avro

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def avro_differences(reader: ParsedSchema, writer: ParsedSchema) -> list[str]:
    """List the reasons why the reader cannot read the writer's data, each with its place in the reader's schema."""
    return _AvroComparison(reader, writer).compare(reader.schema, writer.schema, "")


class _AvroComparison:
    def __init__(self, reader: ParsedSchema, writer: ParsedSchema) -> None:
        self._reader = reader
        self._writer = writer
        self._pairs: set[tuple[str, str]] = set()  # records being compared, or found good: schemas may be recursive

    def compare(self, reader: Any, writer: Any, path: str) -> list[str]:
        kind, new = self._reader.type_of(reader)
        old_kind, old = self._writer.type_of(writer)
        if old_kind == "union":
            return [
                problem
                for number, branch in enumerate(old)
                for problem in self.compare(reader, branch, f"{path}/{number}" if kind == "union" else path)
            ]
        if kind == "union":
            if any(not self.compare(branch, writer, path) for branch in new):
                return []
            return [f"{path or '/'}: MISSING_UNION_BRANCH: reader union lacking writer type {old_kind.upper()}"]
        if kind != old_kind:
            if kind in _PROMOTIONS.get(old_kind, ()):
                return []
            return [f"{path or '/'}: TYPE_MISMATCH: reader type {kind.upper()} not compatible with {old_kind.upper()}"]
        if kind in {"record", "enum", "fixed"} and not _same_name(new, old):
            return [f"{path}/name: NAME_MISMATCH: expected {old['name']}"]
        if kind == "record":
            return self._records(new, old, path)
        if kind == "enum":
            missing = [symbol for symbol in old["symbols"] if symbol not in new["symbols"]]
            return [f"{path}/symbols: MISSING_ENUM_SYMBOLS: {missing}"] if missing and "default" not in new else []
        if kind == "fixed":
            return [] if new["size"] == old["size"] else [f"{path}/size: FIXED_SIZE_MISMATCH: expected {old['size']}"]
        if kind == "array":
            return self.compare(new["items"], old["items"], f"{path}/items")
        if kind == "map":
            return self.compare(new["values"], old["values"], f"{path}/values")
        return []

    def _records(self, new: Any, old: Any, path: str) -> list[str]:
        pair = (new["name"], old["name"])
        if pair in self._pairs:
            return []
        self._pairs.add(pair)
        problems: list[str] = []
        written = {field["name"]: field for field in old["fields"]}
        for number, field in enumerate(new["fields"]):
            here = f"{path}/fields/{number}"
            names = [field["name"], *field.get("aliases", ())]
            match = next((written[name] for name in names if name in written), None)
            if match is not None:
                problems += self.compare(field["type"], match["type"], f"{here}/type")
            elif "default" not in field:
                problems.append(f"{here}: READER_FIELD_MISSING_DEFAULT_VALUE: {field['name']}")
        if problems:
            self._pairs.discard(pair)
        return problems


def _same_name(reader: Any, writer: Any) -> bool:
    """Compare two names without their namespaces, and aliases in full."""
    name = writer["name"]
    short = name.rpartition(".")[2]
    return short == reader["name"].rpartition(".")[2] or any(
        alias in {name, short} for alias in reader.get("aliases", ())
    )


# Protobuf

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
