"""The Avro converter: values between Connect's form and Avro's bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from typing import Any, ClassVar

from penstock.connect.config import ConfigDef
from penstock.connect.data import DataError, Moment, Schema, Struct, Type
from penstock.connect.data.logical import (
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
from penstock.connect.registry_converters.avro_schemas import UNION, from_avro, named, to_avro
from penstock.connect.registry_converters.registry_converter import REGISTRY_SETTINGS, RegistryConverter, flag_setting
from penstock.serde.schemas.avro_limits import check_value, is_bounded
from penstock.serde.schemas.avro_types import Parsed, parse
from penstock.serde.schemas.client import Registered, SchemaText

__all__ = ["AvroConverter"]

MILLIS = {TIME_NAME, TIMESTAMP_NAME}


@dataclass(frozen=True, slots=True)
class _Plan:
    parsed: Parsed
    is_bounded: bool
    is_bytes: bool


class AvroConverter(RegistryConverter):
    """Confluent's ``AvroConverter``: Avro behind the id of its schema in the registry."""

    java_class: ClassVar[str] = "io.confluent.connect.avro.AvroConverter"
    kind: ClassVar[str] = "AVRO"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            *REGISTRY_SETTINGS,
            flag_setting("connect.meta.data", "true", "Write what Connect knows of a schema into it."),
            flag_setting("enhanced.schema.support", "false", "Keep enums and packages of records."),
        ]
    )

    def writing(self, schema: Schema) -> tuple[str, Any, str]:
        made = to_avro(schema, metadata=self.options["connect.meta.data"])
        text = json.dumps(made, ensure_ascii=False)
        return text, _plan(SchemaText(text)), schema.name or ""

    def write(self, plan: Any, schema: Schema, value: Any) -> bytes:
        from fastavro import schemaless_writer

        out = BytesIO()
        form = _to_avro(schema, value)
        if plan.is_bytes:
            return bytes(form)
        try:
            schemaless_writer(out, plan.parsed.schema, form)
        except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
            raise DataError(f"the value does not fit its Avro schema: {error}") from error
        return out.getvalue()

    def reading(self, registered: Registered) -> tuple[Any, Schema | None]:
        try:
            document = named(json.loads(registered.schema.text))
        except ValueError:
            document = registered.schema.text
        known: dict[str, Any] = {}
        for _, text in registered.schema.referred:
            from_avro(named(json.loads(text)), known)
        plain = SchemaText(json.dumps(_without_logical(document)), "AVRO", registered.schema.referred)
        return _plan(plain), from_avro(document, known)

    def read(self, data: bytes, start: int, plan: Any, schema: Schema | None) -> Any:
        from fastavro import schemaless_reader

        if schema is None:
            return None
        if plan.is_bytes:
            return _from_avro(schema, data[start:])
        stream = BytesIO(data)
        stream.seek(start)
        try:
            if not plan.is_bounded:
                check_value(data, start, plan.parsed)
            form = schemaless_reader(stream, plan.parsed.schema, None, return_record_name=True)
        except (ValueError, TypeError, KeyError, EOFError, IndexError, OverflowError) as error:
            raise DataError(f"the bytes are not of their Avro schema ({type(error).__name__}: {error})") from error
        return _from_avro(schema, form)


def _plan(text: SchemaText) -> _Plan:
    plain = SchemaText(json.dumps(_without_logical(json.loads(text.text))), "AVRO", text.referred)
    parsed = parse(plain)
    schema: Any = parsed.schema
    is_bytes = schema == "bytes" or (isinstance(schema, dict) and schema.get("type") == "bytes")
    return _Plan(parsed, is_bounded(parsed), is_bytes)


def _without_logical(schema: Any) -> Any:
    """The schema of the plain types: the logical ones are Connect's matter."""
    if isinstance(schema, list):
        return [_without_logical(part) for part in schema]
    if isinstance(schema, dict):
        kept = {name: value for name, value in schema.items() if name != "logicalType"}
        for name in ("type", "items", "values"):
            if name in kept:
                kept[name] = _without_logical(kept[name])
        if "fields" in kept:
            kept["fields"] = [{**field, "type": _without_logical(field["type"])} for field in kept["fields"]]
        return kept
    return schema


def _to_avro(schema: Schema, value: Any) -> Any:
    if value is None:
        if schema.default is not None:
            return _to_avro(schema, schema.default)
        if schema.optional:
            return None
        raise DataError(f"Found null value for non-optional schema {schema}")
    if isinstance(value, Decimal) and schema.name == DECIMAL_NAME:
        return decimal_to_bytes(schema, value)
    if isinstance(value, Moment):
        if schema.name == DATE_NAME:
            return days_of(value)
        return millis_of_day(value) if schema.name == TIME_NAME else value.ms
    if schema.type is Type.STRUCT:
        if not isinstance(value, Struct):
            raise DataError(f"a value of type {type(value).__name__} for {schema}")
        if schema.name == UNION:
            chosen = [part for part in schema.fields if value.raw(part.name) is not None]
            if len(chosen) != 1:
                raise DataError(f"a union of which {len(chosen)} branches are set, not one")
            return _to_avro(chosen[0].schema.as_optional(optional=False), value.raw(chosen[0].name))
        return {part.name: _to_avro(part.schema, value.raw(part.name)) for part in schema.fields}
    if schema.type is Type.ARRAY and schema.values is not None:
        return [_to_avro(schema.values, each) for each in value]
    if schema.type is Type.MAP and schema.keys is not None and schema.values is not None:
        keys, values = schema.keys, schema.values
        if keys.type is Type.STRING and not keys.optional:
            return {key: _to_avro(values, each) for key, each in value.items()}
        return [{"key": _to_avro(keys, key), "value": _to_avro(values, each)} for key, each in value.items()]
    return value


def _from_avro(schema: Schema, form: Any) -> Any:
    if form is None:
        return None
    if schema.type is Type.STRUCT and schema.name == UNION:
        return _chosen(schema, form)
    if isinstance(form, tuple):  # a record of a union, with its name
        form = form[1]
    if schema.name == DECIMAL_NAME:
        return decimal_from_bytes(schema, form)
    if schema.name == DATE_NAME:
        return date_from_days(form)
    if schema.name in MILLIS:
        return time_from_millis(form) if schema.name == TIME_NAME else Moment(form)
    if schema.type is Type.STRUCT:
        parts = ((part, form.get(part.name)) for part in schema.fields)
        return Struct(schema, {part.name: _from_avro(part.schema, each) for part, each in parts if each is not None})
    if schema.type is Type.ARRAY and schema.values is not None:
        return [_from_avro(schema.values, each) for each in form]
    if schema.type is Type.MAP and schema.keys is not None and schema.values is not None:
        if isinstance(form, dict):
            return {key: _from_avro(schema.values, each) for key, each in form.items()}
        return {_from_avro(schema.keys, each["key"]): _from_avro(schema.values, each["value"]) for each in form}
    return form


def _chosen(schema: Schema, form: Any) -> Struct:
    """The struct of a union, with the field of the branch that a value is of."""
    name, value = (form[0].rpartition(".")[2], form[1]) if isinstance(form, tuple) else (None, form)
    for part in schema.fields:
        if part.name == name or (name is None and _is_of(part.schema, value)):
            return Struct(schema, {part.name: _from_avro(part.schema, value)})
    raise DataError(f"a value of type {type(value).__name__} is of no branch of its union")


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
    wanted = kinds.get(schema.type, int)
    return isinstance(value, wanted) and isinstance(value, bool) == (schema.type is Type.BOOLEAN)
