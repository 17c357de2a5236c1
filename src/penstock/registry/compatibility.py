"""Whether data of one schema can be read with another, whatever kind they are of."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from penstock.registry.avro_rules import AvroSchema, avro_differences
from penstock.registry.json_rules import json_differences
from penstock.registry.model import Reference, Schema, refused
from penstock.registry.protobuf_rules import ProtobufSchema, protobuf_differences

__all__ = ["Resolve", "differences", "parsed"]

Resolve = Callable[[Reference], Schema]


def parsed(schema: Schema, resolve: Resolve) -> Any:
    """The schema as its rules want it.

    Raises:
        SchemaRegistryError: 42201, the text is no schema of its kind.
    """
    try:
        if schema.kind == "AVRO":
            return AvroSchema.of(schema.text, _referred(schema, resolve))
        if schema.kind == "JSON":
            return _json(schema, resolve)
        if schema.kind == "PROTOBUF":
            return ProtobufSchema.of(schema.text)
    except ValueError as error:
        raise refused(422, 42201, f"Invalid schema {schema.text[:200]}, details: {error}") from error
    raise refused(422, 42201, f"Invalid schema type {schema.kind}")


def differences(reader: Schema, writer: Schema, resolve: Resolve) -> list[str]:
    """Why ``reader`` cannot read what ``writer`` wrote; nothing if it can."""
    if reader.kind != writer.kind:
        return [f"schema type changed from {writer.kind} to {reader.kind}"]
    new, old = parsed(reader, resolve), parsed(writer, resolve)
    if reader.kind == "AVRO":
        return avro_differences(new, old)
    return json_differences(new, old) if reader.kind == "JSON" else protobuf_differences(new, old)


def _referred(schema: Schema, resolve: Resolve) -> list[str]:
    """The texts of all schemas that this one builds on, those that need nothing first, each once."""
    texts: dict[Reference, str] = {}

    def visit(one: Schema) -> None:
        for reference in one.references:
            if reference not in texts:
                found = resolve(reference)
                visit(found)
                texts[reference] = found.text

    visit(schema)
    return list(dict.fromkeys(texts.values()))


def _json(schema: Schema, resolve: Resolve) -> Any:
    """The document, with what it refers to under ``$defs``."""
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    document = json.loads(schema.text)
    try:
        validator_for(document).check_schema(document)
    except SchemaError as error:
        raise ValueError(error.message) from error
    others = {reference.name: _json(resolve(reference), resolve) for reference in schema.references}
    if others and isinstance(document, dict):
        document = {**document, "$penstock:references": others}
    return document
