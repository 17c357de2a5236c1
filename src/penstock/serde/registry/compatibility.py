"""Compatibility of schemas: whether data written with one can be read with another, for all kinds of schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.serde.formats.avro import ParsedSchema, parse_avro
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.registry.avro_rules import avro_differences
from penstock.serde.registry.avro_validity import check_avro
from penstock.serde.registry.documents import parse_json
from penstock.serde.registry.json_rules import json_differences
from penstock.serde.registry.model import Reference, StoredSchema, refused
from penstock.serde.registry.protobuf_rules import ProtobufSchema, protobuf_differences

__all__ = ["Resolve", "check_new", "differences"]

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
