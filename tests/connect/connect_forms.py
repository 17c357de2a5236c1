"""The JSON form in which the recorded cases have schemas, values and records, read and written."""

import base64
import math
from dataclasses import replace
from decimal import Decimal
from uuid import UUID

from penstock.connect.data import (
    BigInteger,
    Field,
    Float32,
    Float64,
    Header,
    Headers,
    Int8,
    Int16,
    Int32,
    Int64,
    Moment,
    Schema,
    SinkRecord,
    SourceRecord,
    Struct,
    Type,
    fits,
)
from penstock.serde.data.logical import (
    DATE_NAME,
    DAY_MS,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    decimal_from_bytes,
    decimal_schema,
    decimal_to_bytes,
    unscaled,
)

TYPES = {kind.value: kind for kind in Type}
TAGS = {"$int8": Int8, "$int16": Int16, "$int32": Int32, "$bigint": BigInteger}
TYPED = {
    Type.INT8: Int8,
    Type.INT16: Int16,
    Type.INT32: Int32,
    Type.INT64: Int64,
    Type.FLOAT32: Float32,
    Type.FLOAT64: Float64,
}
LOGICAL = {DECIMAL_NAME: Type.BYTES, DATE_NAME: Type.INT32, TIME_NAME: Type.INT32, TIMESTAMP_NAME: Type.INT64}
FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def read_schema(form):
    """A schema of a case, with whatever Kafka's JsonConverter would refuse: no items, a struct's default."""
    if form is None:
        return None
    fields = tuple(Field(part["field"], i, read_schema(part)) for i, part in enumerate(form.get("fields", ())))
    values = form.get("items") if form["type"] == "array" else form.get("values")
    made = Schema(
        TYPES[form["type"]],
        form["optional"],
        name=form.get("name"),
        version=form.get("version"),
        doc=form.get("doc"),
        parameters=form.get("parameters"),
        fields=fields,
        keys=read_schema(form.get("keys")),
        values=read_schema(values),
    )
    if form.get("default") is None:
        return made
    return replace(made, default=read_value(form["default"], made, is_default=True))


def write_schema(schema):
    if schema is None:
        return None
    form = {"type": schema.type.value, "optional": schema.optional}
    for part in ("name", "version", "doc"):
        if getattr(schema, part) is not None:
            form[part] = getattr(schema, part)
    if schema.parameters is not None:
        form["parameters"] = dict(schema.parameters)
    if schema.type is Type.ARRAY:
        form["items"] = write_schema(schema.values)
    elif schema.type is Type.MAP:
        form |= {"keys": write_schema(schema.keys), "values": write_schema(schema.values)}
    elif schema.type is Type.STRUCT:
        form["fields"] = [{**write_schema(part.schema), "field": part.name} for part in schema.fields]
    if schema.default is not None:
        form["default"] = _write_default(schema, schema.default)
    return form


def _write_default(schema, value):
    """A default, in JsonConverter's form: a Decimal as its unscaled bytes."""
    if isinstance(value, Decimal) and schema.name == DECIMAL_NAME:
        return base64.b64encode(decimal_to_bytes(decimal_schema(unscaled(value)[1]), value)).decode()
    if isinstance(value, Struct):
        parts = ((part, value.get(part, with_default=False)) for part in value.schema.fields)
        shown = ((part, part.schema.default if one is None else one) for part, one in parts)
        return {part.name: None if one is None else _write_default(part.schema, one) for part, one in shown}
    if isinstance(value, list) and schema.values is not None:
        return [None if each is None else _write_default(schema.values, each) for each in value]
    return write_value(value, schema)


def read_value(form, schema=None, *, is_default=False):
    """A value of a case, or a default in JsonConverter's form: a Decimal as its unscaled bytes."""
    if form is None:
        return None
    if isinstance(form, dict) and form.keys() == {"$typed"}:
        return _typed(form["$typed"])
    if schema is None:
        return _plain(form)
    if schema.name == DECIMAL_NAME:
        return decimal_from_bytes(schema, base64.b64decode(form)) if is_default else Decimal(form)
    if schema.name == DATE_NAME:
        return Moment(form * DAY_MS)
    if schema.name in (TIME_NAME, TIMESTAMP_NAME):
        return Moment(form)
    match schema.type:
        case Type.BYTES:
            return base64.b64decode(form)
        case Type.FLOAT32 | Type.FLOAT64:
            return FLOATS[form] if isinstance(form, str) else float(form)
        case Type.ARRAY:
            return [read_value(part, schema.values, is_default=is_default) for part in form]
        case Type.MAP:
            pairs = form.items() if isinstance(form, dict) else form
            return {
                read_value(k, schema.keys, is_default=is_default): read_value(v, schema.values, is_default=is_default)
                for k, v in pairs
            }
        case Type.STRUCT:
            made = Struct(schema)
            for part in schema.fields:  # as recorded: nulls of required fields too
                made._values[part.index] = read_value(form.get(part.name), part.schema, is_default=is_default)
            return made
    return form


def _typed(form):
    schema = read_schema(form["schema"])
    value = read_value(form["value"], schema)
    return _tagged(value, schema)


def _tagged(value, schema):
    """A value whose numbers know their type, as no schema will tell it."""
    match value:
        case list():
            return [_tagged(each, schema.values) for each in value]
        case dict():
            return {_tagged(k, schema.keys): _tagged(each, schema.values) for k, each in value.items()}
    return TYPED[schema.type](value) if isinstance(value, int | float) and schema.type in TYPED else value


def _plain(form):
    if isinstance(form, list):
        return [read_value(part) for part in form]
    if not isinstance(form, dict):
        return form
    if len(form) == 1:
        tag, value = next(iter(form.items()))
        if tag in TAGS:
            return TAGS[tag](value)
        match tag:
            case "$float32":
                return Float32(FLOATS.get(value, value))
            case "$float64":
                return FLOATS[value] if isinstance(value, str) else float(value)
            case "$bytes":
                return base64.b64decode(value)
            case "$decimal":
                return Decimal(value)
            case "$date":
                return Moment(value)
            case "$uuid":
                return UUID(value)
            case "$map":
                return {read_value(k): read_value(v) for k, v in value}
    return {key: read_value(part) for key, part in form.items()}


def write_value(value, schema=None):
    """The form of a value; numbers without the tags of their types."""
    if value is None:
        return None
    if schema is None or not fits(schema, value) or LOGICAL.get(schema.name, schema.type) is not schema.type:
        return _write_plain(value)
    if schema.name == DECIMAL_NAME:
        return str(value)
    if schema.name == DATE_NAME:
        return value.ms // DAY_MS
    if schema.name in (TIME_NAME, TIMESTAMP_NAME):
        return value.ms
    match schema.type:
        case Type.BYTES:
            return base64.b64encode(value).decode()
        case Type.FLOAT32 | Type.FLOAT64:
            return _float(value)
        case Type.ARRAY:
            return [write_value(part, schema.values) for part in value]
        case Type.MAP:
            if schema.keys is not None and schema.keys.type is Type.STRING:
                return {key: write_value(part, schema.values) for key, part in value.items()}
            return [[write_value(k, schema.keys), write_value(v, schema.values)] for k, v in value.items()]
        case Type.STRUCT:
            fields = value.schema.fields
            return {part.name: write_value(value.get(part, with_default=False), part.schema) for part in fields}
    return value if isinstance(value, str | bool) else int(value)


def _float(value):
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


def _write_plain(value):
    match value:
        case bool() | str():
            return value
        case int():
            return int(value)
        case float():
            return _float(value)
        case bytes():
            return {"$bytes": base64.b64encode(value).decode()}
        case Decimal():
            return {"$decimal": str(value)}
        case Moment():
            return {"$date": value.ms}
        case UUID():
            return {"$uuid": str(value)}
        case list() | tuple():
            return [write_value(part) for part in value]
        case dict():
            if all(isinstance(key, str) for key in value):
                return {key: write_value(part) for key, part in value.items()}
            return {"$map": [[write_value(k), write_value(v)] for k, v in value.items()]}
        case Struct():
            return {"$typed": {"schema": write_schema(value.schema), "value": write_value(value, value.schema)}}
    raise TypeError(f"no form for {type(value)}")


def read_record(form):
    key_schema, value_schema = read_schema(form["key_schema"]), read_schema(form["value_schema"])
    headers = []
    for header in form["headers"]:
        schema = read_schema(header["schema"])
        headers.append(Header(header["key"], read_value(header["value"], schema), schema))
    common = {
        "topic": form["topic"],
        "partition": form["partition"],
        "key": read_value(form["key"], key_schema),
        "key_schema": key_schema,
        "value": read_value(form["value"], value_schema),
        "value_schema": value_schema,
        "timestamp": form["timestamp"],
        "headers": Headers(headers),
    }
    if form["kind"] == "sink":
        return SinkRecord(**common, offset=form["offset"])
    return SourceRecord(**common)


def write_record(record):
    if record is None:
        return None
    form = {
        "kind": "sink" if isinstance(record, SinkRecord) else "source",
        "topic": record.topic,
        "partition": record.partition,
        "timestamp": record.timestamp,
        "key_schema": write_schema(record.key_schema),
        "key": write_value(record.key, record.key_schema),
        "value_schema": write_schema(record.value_schema),
        "value": write_value(record.value, record.value_schema),
        "headers": [
            {"key": h.key, "schema": write_schema(h.schema), "value": write_value(h.value, h.schema)}
            for h in record.headers
        ],
    }
    return {**form, "offset": record.offset} if isinstance(record, SinkRecord) else form
