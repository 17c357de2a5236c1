"""The Avro converter: values between Connect's form and Avro's bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from decimal import Decimal
from io import BytesIO
from typing import Any, ClassVar

from penstock.connect.config import ConfigDef, Model
from penstock.connect.converters.converter import Role
from penstock.connect.data import DataError, Moment, Schema, Struct, Type
from penstock.connect.registry_converters.registry_converter import (
    AVRO_MODEL,
    REGISTRY_SETTINGS,
    RegistryConverter,
    flag_setting,
)
from penstock.serde.data.logical import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    date_from_days,
    days_of,
    decimal_from_bytes,
    decimal_to_bytes,
    millis_of_day,
    time_from_millis,
)
from penstock.serde.formats.avro import (
    UNION,
    ParsedSchema,
    avro_branch,
    connect_schema_of_avro,
    is_enum,
    is_fixed,
    padded,
    parse_plain_avro,
    scrubbed,
    to_avro,
)
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.schemas.client import Registered
from penstock.serde.schemas.value_bytes import check_value, is_bounded, is_plain

__all__ = ["AvroConverter"]

MILLIS = {TIME_NAME, TIMESTAMP_NAME}


@dataclass(frozen=True, slots=True)
class _ConverterPlan:
    parsed: ParsedSchema
    is_bounded: bool
    is_bytes: bool


class AvroConverter(RegistryConverter):
    """Confluent's ``AvroConverter``: Avro behind the id of its schema in the registry."""

    java_class: ClassVar[str] = "io.confluent.connect.avro.AvroConverter"
    kind: ClassVar[str] = "AVRO"
    model: ClassVar[Model] = AVRO_MODEL
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            *REGISTRY_SETTINGS,
            flag_setting("connect.meta.data", "true", "Write what Connect knows of a schema into it."),
            flag_setting("enhanced.avro.schema.support", "false", "Keep enums, and packages in the names of unions."),
            flag_setting("scrub.invalid.names", "false", "Replace characters that names cannot have."),
            flag_setting("ignore.default.for.nullables", "false", "Null stays null where there is a default."),
        ]
    )

    def configure(self, settings: Mapping[str, Any], role: Role = "value") -> None:
        super().configure(settings, role)
        self._form = _Form(
            enhanced=self.options["enhanced.avro.schema.support"],
            scrubs=self.options["scrub.invalid.names"],
            keeps_null=self.options["ignore.default.for.nullables"],
        )

    def writing(self, schema: Schema) -> tuple[str, Any, str]:
        form = self._form
        metadata = self.options["connect.meta.data"]
        avro_schema = to_avro(schema, metadata=metadata, enhanced=form.enhanced, scrubs=form.scrubs)
        text = json.dumps(avro_schema, ensure_ascii=False)
        return text, _plan(SchemaText(text)), schema.name or ""

    def writing_as(self, registered: Registered, plan: Any) -> Any:  # noqa: ARG002 - the schema says all
        registered_plan = _plan(registered.schema)
        return replace(registered_plan, parsed=_with_bytes_as_defaults(registered_plan.parsed))

    def write(self, plan: Any, schema: Schema, value: Any) -> bytes:
        from fastavro import schemaless_writer

        out = BytesIO()
        form = self._form.written(schema, value)
        if plan.is_bytes:
            return bytes(form)
        try:
            schemaless_writer(out, plan.parsed.schema, form)
        except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
            raise DataError(f"the value does not fit its Avro schema: {error}") from error
        return out.getvalue()

    def reading(self, registered: Registered) -> tuple[Any, Schema | None]:
        try:
            return _plan(registered.schema), connect_schema_of_avro(registered.schema, enhanced=self._form.enhanced)
        except ValueError as error:
            raise DataError(f"schema {registered.schema_id} is not an Avro schema: {error}") from error

    def read(self, data: bytes, start: int, plan: Any, schema: Schema | None) -> Any:
        from fastavro import schemaless_reader

        if schema is None:
            return None
        if plan.is_bytes:
            return _from_avro(schema, data[start:], self._form)
        stream = BytesIO(data)
        stream.seek(start)
        try:
            if not plan.is_bounded:
                check_value(data, start, plan.parsed)
            form = schemaless_reader(stream, plan.parsed.schema, None, return_named_type=True)
        except (ValueError, TypeError, KeyError, EOFError, IndexError, OverflowError) as error:
            raise DataError(f"the bytes are not of their Avro schema ({type(error).__name__}: {error})") from error
        return _from_avro(schema, form, self._form)


def _plan(text: SchemaText) -> _ConverterPlan:
    parsed = parse_plain_avro(text)
    return _ConverterPlan(parsed, is_bounded(parsed), is_plain(parsed.schema))


def _with_bytes_as_defaults(parsed: ParsedSchema) -> ParsedSchema:
    """Return a schema to write values of others with: defaults of bytes, which are text in schemas, are bytes."""
    schema, names = deepcopy((parsed.schema, parsed.names))
    copied, seen = ParsedSchema(schema, names), set()

    def form(kind: Any, default: Any) -> Any:
        name, definition = copied.type_of(kind)
        if name == "union":
            return form(definition[0], default)
        if name in ("bytes", "fixed"):
            return default.encode("latin-1") if isinstance(default, str) else default
        if name == "array":
            return [form(definition["items"], each) for each in default]
        if name == "map":
            return {key: form(definition["values"], each) for key, each in default.items()}
        if name == "record":
            kinds = {field["name"]: field["type"] for field in definition["fields"]}
            return {key: form(kinds[key], each) for key, each in default.items()}
        return default

    def visit(node: Any) -> None:
        if id(node) in seen or not isinstance(node, dict | list):
            return
        seen.add(id(node))
        for field in node.get("fields", ()) if isinstance(node, dict) else ():
            if "default" in field:
                field["default"] = form(field["type"], field["default"])
        for each in node.values() if isinstance(node, dict) else node:
            visit(each)

    visit([schema, names])
    return copied


@dataclass(frozen=True, slots=True)
class _Form:
    """The form in which values are written and read."""

    enhanced: bool = False
    scrubs: bool = False
    keeps_null: bool = False

    def written(self, schema: Schema, value: Any) -> Any:
        """Return a value as Avro's writer takes it."""
        if value is None:
            if schema.optional and (self.keeps_null or schema.default is None):
                return None
            if schema.default is not None:
                return self.written(schema, schema.default)
            raise DataError(f"Found null value for non-optional schema {schema}")
        if isinstance(value, Decimal) and schema.name == DECIMAL_NAME:
            return padded(schema, decimal_to_bytes(schema, value))
        if isinstance(value, Moment):
            if schema.name == DATE_NAME:
                return days_of(value)
            return millis_of_day(value) if schema.name == TIME_NAME else value.ms
        if schema.type is Type.STRUCT:
            return self._struct(schema, value)
        if schema.type is Type.ARRAY and schema.values is not None:
            return [self.written(schema.values, each) for each in value]
        if schema.type is Type.MAP and schema.keys is not None and schema.values is not None:
            keys, values = schema.keys, schema.values
            if keys.type is Type.STRING and not keys.optional:
                return {key: self.written(values, each) for key, each in value.items()}
            return [{"key": self.written(keys, key), "value": self.written(values, e)} for key, e in value.items()]
        return value

    def _struct(self, schema: Schema, value: Any) -> Any:
        if not isinstance(value, Struct):
            raise DataError(f"a value of type {type(value).__name__} for {schema}")
        if schema.name == UNION:
            chosen = [part for part in schema.fields if value.raw(part.name) is not None]
            if len(chosen) != 1:
                raise DataError(f"a union of which {len(chosen)} branches are set, not one")
            branch = chosen[0].schema.as_optional(optional=False)
            branch_value = self.written(branch, value.raw(chosen[0].name))
            return avro_branch(branch, enhanced=self.enhanced, scrubs=self.scrubs), branch_value
        return {self.name(part.name): self.written(part.schema, value.raw(part.name)) for part in schema.fields}

    def name(self, name: str) -> str:
        """Return the name of a field in Avro."""
        return scrubbed(name) if self.scrubs else name


def _from_avro(schema: Schema, form: Any, how: _Form) -> Any:
    if form is None:
        return None
    if schema.type is Type.STRUCT and schema.name == UNION:
        return _chosen(schema, form, how)
    if isinstance(form, tuple):  # of a union, with the name of its type
        form = form[1]
    if schema.name == DECIMAL_NAME:
        return decimal_from_bytes(schema, form)
    if schema.name == DATE_NAME:
        return date_from_days(form)
    if schema.name in MILLIS:
        return time_from_millis(form) if schema.name == TIME_NAME else Moment(form)
    if schema.type is Type.STRUCT:
        parts = ((part, form.get(part.name)) for part in schema.fields)
        read = {part.name: _from_avro(part.schema, each, how) for part, each in parts if each is not None}
        return Struct(schema, read)
    if schema.type is Type.ARRAY and schema.values is not None:
        return [_from_avro(schema.values, each, how) for each in form]
    if schema.type is Type.MAP and schema.keys is not None and schema.values is not None:
        if isinstance(form, dict):
            return {key: _from_avro(schema.values, each, how) for key, each in form.items()}
        entries = (each[1] if isinstance(each, tuple) else each for each in form)
        return {_from_avro(schema.keys, e["key"], how): _from_avro(schema.values, e["value"], how) for e in entries}
    return form


def _chosen(schema: Schema, form: Any, how: _Form) -> Struct:
    """Return the struct of a union, with the field of the branch that a value is of."""
    name, value = (form[0], form[1]) if isinstance(form, tuple) else (None, form)
    if name is not None and not how.enhanced:
        name = name.rpartition(".")[2]
    for part in schema.fields:
        if part.name == name or (name is None and not _is_named(part.schema) and _is_of(part.schema, value)):
            return Struct(schema, {part.name: _from_avro(part.schema, value, how)})
    raise DataError(f"a value of type {type(value).__name__} is of no branch of its union")


def _is_named(schema: Schema) -> bool:
    return schema.type is Type.STRUCT or is_enum(schema) or is_fixed(schema)


def _is_of(schema: Schema, value: Any) -> bool:
    kinds: dict[Type, type | tuple[type, ...]] = {
        Type.BOOLEAN: bool,
        Type.STRING: str,
        Type.BYTES: bytes,
        Type.ARRAY: list,
        Type.MAP: (dict, list),
        Type.FLOAT32: float,
        Type.FLOAT64: float,
    }
    python_types = kinds.get(schema.type, int)
    if schema.type is Type.INT32 and isinstance(value, int) and not -(1 << 31) <= value < 1 << 31:
        return False
    return isinstance(value, python_types) and isinstance(value, bool) == (schema.type is Type.BOOLEAN)
