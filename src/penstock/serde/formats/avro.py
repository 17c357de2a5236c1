"""Avro: parsed schemas, and Connect's schemas as Avro's and back, by the rules of Confluent's ``AvroData``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from urllib.parse import quote_plus

from penstock.base.log_lines import own_logger
from penstock.serde.data import DATE, TIME, TIMESTAMP, DataError, Moment, Schema, Struct, Type, map_of, struct
from penstock.serde.data import array as array_of
from penstock.serde.data.logical import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    decimal_from_bytes,
    decimal_to_bytes,
)
from penstock.serde.formats.schema_text import SchemaText, SchemaWalk

__all__ = [
    "ENUM",
    "PRECISION",
    "UNION",
    "ParsedSchema",
    "avro_branch",
    "branch_name",
    "connect_schema_of_avro",
    "from_avro",
    "is_entry_list",
    "is_enum",
    "is_fixed",
    "padded",
    "parse_avro",
    "parse_avro_for_columns",
    "parse_plain_avro",
    "scrubbed",
    "to_avro",
]

NAMESPACE, DEFAULT_NAME, ENTRY = "io.confluent.connect.avro", "ConnectDefault", "MapEntry"
ENUM, UNION = f"{NAMESPACE}.Enum", f"{NAMESPACE}.Union"
FIXED = "connect.fixed.size"
PRECISION = "connect.decimal.precision"
SIMPLE = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
LOGICAL = {
    DECIMAL_NAME: "decimal",
    DATE_NAME: "date",
    TIME_NAME: "time-millis",
    TIMESTAMP_NAME: "timestamp-millis",
}
READ = {"int": Type.INT32, "long": Type.INT64, "float": Type.FLOAT32, "double": Type.FLOAT64}
READ |= {"boolean": Type.BOOLEAN, "string": Type.STRING, "bytes": Type.BYTES}
SMALL = {"int8": Type.INT8, "int16": Type.INT16}
NAMED = ("record", "error", "enum", "fixed")
COMPLEX = (*NAMED, "array", "map")
_log = own_logger(__name__)


class ParsedSchema:
    """A schema as fastavro has it, with the types that its names stand for."""

    __slots__ = ("names", "schema")

    def __init__(self, schema: Any, names: dict[str, Any]) -> None:
        self.schema = schema
        self.names = names

    def type_of(self, schema: Any) -> tuple[str, Any]:
        """Return the kind of a part of the schema ("record", "union", "int", ...), and its definition."""
        while True:
            if isinstance(schema, list):
                return "union", schema
            if isinstance(schema, str):
                if schema not in self.names:
                    return schema, {"type": schema}
                schema = self.names[schema]
            kind = schema["type"]
            if isinstance(kind, str) and kind not in self.names:
                return ("record" if kind == "error" else kind), schema
            schema = kind


@lru_cache(maxsize=1024)
def parse_avro(text: SchemaText) -> ParsedSchema:
    """Return the schema of a text, parsed once per process.

    Raises:
        ValueError: It is not an Avro schema.
    """
    return _parsed(text, lambda schema: schema)


@lru_cache(maxsize=1024)
def parse_avro_for_columns(text: SchemaText) -> ParsedSchema:
    """Return the schema for columns: a UUID stays text, as columns have no type for it."""
    return _parsed(text, lambda schema: _without_logical(schema, {"uuid"}))


@lru_cache(maxsize=1024)
def parse_plain_avro(text: SchemaText) -> ParsedSchema:
    """Return the schema without its logical types: values are the numbers, texts and bytes that are written."""
    return _parsed(text, _without_logical)


def _parsed(text: SchemaText, change: Callable[[Any], Any]) -> ParsedSchema:
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    names: dict[str, Any] = {}
    try:
        for _, other in text.referred:
            parse_schema(change(json.loads(other)), named_schemas=names)
        return ParsedSchema(parse_schema(change(json.loads(text.text)), named_schemas=names), names)
    except (SchemaParseException, UnknownType, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__} {error}") from error


def _without_logical(schema: Any, words: frozenset[str] | set[str] | None = None) -> Any:
    """Return a schema without these logical types; without all by default."""
    if isinstance(schema, list):
        return [_without_logical(branch, words) for branch in schema]
    if isinstance(schema, dict):
        kept = {name: _without_logical(part, words) if name != "default" else part for name, part in schema.items()}
        if "logicalType" in kept and (words is None or kept["logicalType"] in words):
            del kept["logicalType"]
        return kept
    return schema


@dataclass(slots=True)
class _AvroWriting:
    """The state of writing one schema: its settings, and the names that it has used."""

    metadata: bool = True
    enhanced: bool = False
    scrubs: bool = False
    names: set[str] = field(default_factory=set)
    unnamed: int = 0

    def full_name(self, schema: Schema) -> str:
        """Return the full name of a record, an enum or a fixed."""
        if schema.name is None:
            self.unnamed += 1
            return f"{NAMESPACE}.{DEFAULT_NAME}{self.unnamed if self.unnamed > 1 else ''}"
        return scrubbed_full_name(schema.name) if self.scrubs else schema.name

    def named(self, full: str, kind: str) -> dict[str, Any]:
        """Return the beginning of a named type."""
        self.names.add(full)
        namespace, _, name = full.rpartition(".")
        return {"type": kind, "name": name, **({"namespace": namespace} if namespace else {})}


def to_avro(schema: Schema, *, metadata: bool = True, enhanced: bool = False, scrubs: bool = False) -> Any:
    """Return Avro's schema of Connect's, as JSON.

    Args:
        schema: Connect's schema.
        metadata: Keep what Avro has no place for as ``connect.*`` properties.
        enhanced: Texts that were enums are enums again; else they are strings.
        scrubs: Replace characters that names cannot have.

    Example:
        >>> from penstock.connect.data import INT8, OPTIONAL_STRING
        >>> to_avro(INT8), to_avro(OPTIONAL_STRING)
        ({'type': 'int', 'connect.type': 'int8'}, ['null', 'string'])
    """
    return _written(schema, _AvroWriting(metadata, enhanced, scrubs))


def _written(schema: Schema, how: _AvroWriting) -> Any:
    avro_schema = _base(schema, how)
    if _union(schema):
        return ["null", *avro_schema] if schema.optional else avro_schema
    if not schema.optional:
        return avro_schema
    return ["null", avro_schema] if schema.default is None else [avro_schema, "null"]


def _base(schema: Schema, how: _AvroWriting) -> Any:
    avro_schema: dict[str, Any]
    if _union(schema):
        return [_base(part.schema, how) for part in schema.fields]
    match schema.type:
        case Type.STRUCT:
            full = how.full_name(schema)
            if full in how.names:
                return full
            avro_schema = how.named(full, "record")
            avro_schema["fields"] = [_field(part.name, part.schema, how) for part in schema.fields]
        case Type.ARRAY:
            avro_schema = {"type": "array", "items": _written(_known(schema.values), how)}
        case Type.MAP:
            keys = _known(schema.keys)
            if keys.type is Type.STRING and not keys.optional:
                avro_schema = {"type": "map", "values": _written(_known(schema.values), how)}
            else:
                avro_schema = {"type": "array", "items": _entry(keys, _known(schema.values), schema.name, how)}
        case _:
            simple = _simple(schema, how)
            if isinstance(simple, str):
                return simple
            avro_schema = simple
    return _with_metadata(avro_schema, schema, how) if how.metadata else avro_schema


def _simple(schema: Schema, how: _AvroWriting) -> dict[str, Any] | str:
    parameters = schema.parameters or {}
    avro_schema: dict[str, Any]
    if how.enhanced and is_enum(schema):
        full = parameters[ENUM]
        if full in how.names:
            return full
        avro_schema = how.named(full, "enum")
        avro_schema["symbols"] = [key.removeprefix(f"{ENUM}.") for key in parameters if key.startswith(f"{ENUM}.")]
        return avro_schema
    if is_fixed(schema):
        full = how.full_name(schema)
        if full in how.names:
            return full
        avro_schema = {**how.named(full, "fixed"), "size": int(parameters[FIXED])}
    else:
        avro_schema = {"type": SIMPLE[schema.type]}
    if schema.name == DECIMAL_NAME:
        avro_schema |= {"scale": int(parameters["scale"]), "precision": int(parameters.get(PRECISION, 64))}
    if schema.type in (Type.INT8, Type.INT16):
        avro_schema["connect.type"] = schema.type.value
    if schema.name in LOGICAL:
        avro_schema["logicalType"] = LOGICAL[schema.name]
    return avro_schema


def _with_metadata(avro_schema: dict[str, Any], schema: Schema, how: _AvroWriting) -> Any:
    if schema.doc is not None:
        avro_schema["connect.doc"] = schema.doc
    if schema.version is not None:
        avro_schema["connect.version"] = schema.version
    if schema.parameters:
        avro_schema["connect.parameters"] = dict(schema.parameters)
    if schema.default is not None:
        avro_schema["connect.default"] = _default(schema, schema.default, how)
    if schema.name is not None:
        avro_schema["connect.name"] = schema.name
    return avro_schema["type"] if set(avro_schema) == {"type"} else avro_schema


def _field(name: str, schema: Schema, how: _AvroWriting) -> dict[str, Any]:
    avro_schema: dict[str, Any] = {"name": scrubbed(name) if how.scrubs else name, "type": _written(schema, how)}
    if schema.doc is not None:
        avro_schema["doc"] = schema.doc
    if schema.default is not None:
        if not _union(schema):
            avro_schema["default"] = _default(schema, schema.default, how)
        elif not schema.optional and schema.default.raw(schema.fields[0].name) is not None:
            first = schema.fields[0]  # the default of a union is one of its first branch
            avro_schema["default"] = _default(first.schema, schema.default.raw(first.name), how)
    elif schema.optional:
        avro_schema["default"] = None
    return avro_schema


def _entry(keys: Schema, values: Schema, name: str | None, how: _AvroWriting) -> Any:
    full = name or f"{NAMESPACE}.{ENTRY}"
    while full in how.names:
        full += "_"
    avro_schema = how.named(full, "record")
    if full != f"{NAMESPACE}.{ENTRY}":
        avro_schema["connect.internal.type"] = ENTRY
    avro_schema["fields"] = [_field("key", keys, how), _field("value", values, how)]
    return avro_schema


def _default(schema: Schema, value: Any, how: _AvroWriting) -> Any:
    if value is None:
        return None
    if isinstance(value, Struct):
        parts = ((scrubbed(part.name) if how.scrubs else part.name, part) for part in value.schema.fields)
        return {name: _default(part.schema, value[part.name], how) for name, part in parts}
    if schema.name == DECIMAL_NAME:
        return padded(schema, decimal_to_bytes(schema, value)).decode("latin-1")
    if isinstance(value, Moment):
        return value.ms // 86_400_000 if schema.name == DATE_NAME else value.ms
    if schema.type is Type.ARRAY and schema.values is not None:
        return [_default(schema.values, each, how) for each in value]
    if schema.type is Type.MAP and schema.keys is not None and schema.values is not None:
        if schema.keys.type is Type.STRING and not schema.keys.optional:
            return {key: _default(schema.values, each, how) for key, each in value.items()}
        pairs = ((_default(schema.keys, key, how), _default(schema.values, each, how)) for key, each in value.items())
        return [{"key": key, "value": each} for key, each in pairs]
    return value.decode("latin-1") if isinstance(value, bytes) else value


def padded(schema: Schema, data: bytes) -> bytes:
    """Return the bytes of a decimal, as many as a fixed has.

    Raises:
        DataError: There are more.
    """
    if not is_fixed(schema):
        return data
    size = int((schema.parameters or {})[FIXED])
    if len(data) > size:
        raise DataError(f"Unscaled value byte array length {len(data)} is greater than fixed size {size}")
    return data.rjust(size, b"\xff" if data[:1] >= b"\x80" else b"\0")


def is_enum(schema: Schema) -> bool:
    """Return whether a text was an enum."""
    return schema.type is Type.STRING and ENUM in (schema.parameters or {})


def is_fixed(schema: Schema) -> bool:
    """Return whether bytes are those of a fixed."""
    return schema.type is Type.BYTES and schema.name is not None and FIXED in (schema.parameters or {})


def scrubbed(name: str) -> str:
    """Return a name of letters, digits and underscores, as Confluent makes it of any other.

    >>> scrubbed("bad name"), scrubbed("1st"), scrubbed("ü")
    ('bad_name', 'x1st', '_C3_BC')
    """
    if not name or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return name
    encoded = quote_plus(name, safe="*")
    return re.sub(r"[^A-Za-z0-9_]", "_", f"x{encoded}" if encoded[0].isdigit() else encoded)


def scrubbed_full_name(name: str) -> str:
    """Return a full name of which the last part is scrubbed; the namespace too, part by part."""
    return ".".join(map(scrubbed, name.split(".")))


def avro_branch(schema: Schema, *, enhanced: bool, scrubs: bool) -> str:
    """Return the name by which a union's branch is chosen when a value is written."""
    if is_enum(schema) and enhanced:
        return (schema.parameters or {})[ENUM]
    if schema.type is Type.STRUCT or is_fixed(schema):
        full = schema.name or f"{NAMESPACE}.{DEFAULT_NAME}"
        return scrubbed_full_name(full) if scrubs else full
    if schema.type is Type.MAP:
        texts = schema.keys is not None and schema.keys.type is Type.STRING and not schema.keys.optional
        return "map" if texts else "array"
    return "array" if schema.type is Type.ARRAY else SIMPLE[schema.type]


def connect_schema_of_avro(text: SchemaText, *, enhanced: bool = False) -> Schema:
    """Return Connect's schema of the text of an Avro schema.

    Raises:
        DataError: See `from_avro`.
        ValueError: A text is not JSON.
    """
    named_types: dict[str, Schema] = {}
    for _, other in text.referred:
        from_avro(json.loads(other), named_types, enhanced=enhanced)
    return from_avro(json.loads(text.text), named_types, enhanced=enhanced)


def from_avro(schema: Any, named_types: dict[str, Schema] | None = None, *, enhanced: bool = False) -> Schema:
    """Return Connect's schema of Avro's JSON.

    Args:
        schema: Avro's schema.
        named_types: The types that its names stand for; those that it defines are added.
        enhanced: See `to_avro`.

    Raises:
        DataError: It refers to itself, or to a name that is not defined, or has two branches of one name in a union.

    Example:
        >>> str(from_avro(["null", {"type": "int", "logicalType": "date"}]))
        'Schema{org.apache.kafka.connect.data.Date:INT32}'
    """
    return _read(named(schema), _AvroReading(enhanced, {} if named_types is None else named_types))


@dataclass(slots=True)
class _AvroReading:
    """The state of reading a schema: the named types that were read before, and those that it is inside of."""

    enhanced: bool
    names: dict[str, Schema]
    walk: SchemaWalk = field(default_factory=SchemaWalk)


def _read(schema: Any, how: _AvroReading) -> Schema:
    if isinstance(schema, list):
        return _from_union(schema, how)
    if isinstance(schema, str):
        if schema in READ:
            return Schema(READ[schema])
        if schema == "null":
            raise DataError("Standalone null schemas are not supported by this converter")
        if schema not in how.names:
            with how.walk.inside(schema):
                raise DataError(f"the Avro schema refers to {schema}, which is not defined before")
        return how.names[schema]
    kind = schema["type"]
    if isinstance(kind, list | dict):
        return _restored(_read(kind, how), schema)
    if kind not in READ and kind not in COMPLEX:
        return _read(kind, how)
    with how.walk.inside(_full_name(schema) if kind in NAMED else ""):
        return _restored(_read_kind(kind, schema, how), schema)


def _read_kind(kind: str, schema: Mapping[str, Any], how: _AvroReading) -> Schema:
    named_schemas, logical = how.names, str(schema.get("logicalType", "")).lower()
    if kind in ("record", "error"):
        full = _full_name(schema)
        fields = [(part["name"], _read_field(part, how)) for part in schema["fields"]]
        connect_schema = struct(fields, name=None if full.startswith(f"{NAMESPACE}.{DEFAULT_NAME}") else full)
        named_schemas[full] = connect_schema
        return connect_schema
    if kind == "enum":
        full = _full_name(schema)
        parameters = {ENUM: full, **{f"{ENUM}.{symbol}": symbol for symbol in schema["symbols"]}}
        connect_schema = Schema(Type.STRING, name=full, parameters=parameters)
        named_schemas[full] = connect_schema
        return connect_schema
    if kind == "array":
        if is_entry_list(schema):
            key, value = (_read_field(part, how) for part in schema["items"]["fields"])
            own = _full_name(schema["items"])
            return replace(map_of(key, value), name=None if own.startswith(f"{NAMESPACE}.{ENTRY}") else own)
        return array_of(_read(schema["items"], how))
    if kind == "map":
        return map_of(Schema(Type.STRING), _read(schema["values"], how))
    if kind in ("bytes", "fixed"):
        connect_schema = Schema(Type.BYTES)
        if logical == "decimal":
            parameters = {"scale": str(schema.get("scale", 0))}
            if schema.get("precision", 64) != 64:
                parameters[PRECISION] = str(schema["precision"])
            connect_schema = Schema(Type.BYTES, name=DECIMAL_NAME, version=1, parameters=parameters)
        if kind == "fixed":
            own_parameters = {**(connect_schema.parameters or {}), FIXED: str(schema["size"])}
            connect_schema = replace(
                connect_schema, name=connect_schema.name or _full_name(schema), parameters=own_parameters
            )
            named_schemas[_full_name(schema)] = connect_schema
        return connect_schema
    logical_types = {("int", "date"): DATE, ("int", "time-millis"): TIME, ("long", "timestamp-millis"): TIMESTAMP}
    return logical_types.get((kind, logical)) or Schema(READ[kind])


def _restored(connect_schema: Schema, schema: Mapping[str, Any]) -> Schema:
    changes: dict[str, Any] = {}
    if schema.get("connect.type") in SMALL and connect_schema.type is Type.INT32 and connect_schema.name is None:
        changes["type"] = SMALL[schema["connect.type"]]
    for name in ("doc", "version", "name"):
        if f"connect.{name}" in schema:
            changes[name] = schema[f"connect.{name}"]
    if "connect.parameters" in schema:
        changes["parameters"] = {**(connect_schema.parameters or {}), **schema["connect.parameters"]}
    connect_schema = replace(connect_schema, **changes) if changes else connect_schema
    if "connect.default" in schema:
        connect_schema = replace(connect_schema, default=_read_default(connect_schema, schema["connect.default"]))
    return connect_schema


def _read_field(part: Mapping[str, Any], how: _AvroReading) -> Schema:
    """Return the schema of a field, whose own default counts before one of its type."""
    how.walk.field()
    connect_schema = _read(part["type"], how)
    if "default" in part:
        connect_schema = replace(connect_schema, default=_read_default(connect_schema, part["default"]))
    if connect_schema.doc is None and part.get("doc") is not None:
        connect_schema = replace(connect_schema, doc=part["doc"])
    return connect_schema


def _read_default(schema: Schema, value: Any) -> Any:
    """Return a default in Connect's form; None, with a note in the log, if it does not fit its type."""
    try:
        return _read_value(schema, value)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, DataError) as error:
        _log.warning("the default %r does not fit %s and is left out: %s", value, schema, error)
        return None


def _read_value(schema: Schema, value: Any) -> Any:
    if value is None:
        if not schema.optional:
            raise ValueError("null is not one of its values")
        return None
    if _union(schema):  # defaults are of the first branch
        first = schema.fields[0]
        return Struct(schema, {first.name: _read_value(first.schema, value)})
    if schema.type is Type.BYTES:
        data = value.encode("latin-1")
        return decimal_from_bytes(schema, data) if schema.name == DECIMAL_NAME else data
    if schema.type is Type.STRUCT:
        record = Struct(schema)
        for part in schema.fields:
            if part.name in value:
                record[part.name] = _read_value(part.schema, value[part.name])
        return record
    if schema.type is Type.ARRAY and schema.values is not None:
        return [_read_value(schema.values, each) for each in value]
    if schema.type is Type.MAP and schema.keys is not None and schema.values is not None:
        if isinstance(value, list):
            return {_read_value(schema.keys, e["key"]): _read_value(schema.values, e["value"]) for e in value}
        return {key: _read_value(schema.values, each) for key, each in value.items()}
    if schema.name == DATE_NAME:
        return Moment(value * 86_400_000)
    if schema.name in (TIME_NAME, TIMESTAMP_NAME):
        return Moment(value)
    if schema.type in (Type.FLOAT32, Type.FLOAT64):
        return float(value)
    kinds = {Type.BOOLEAN: bool, Type.STRING: str}
    if not isinstance(value, kinds.get(schema.type, int)) or isinstance(value, bool) != (schema.type is Type.BOOLEAN):
        raise TypeError(f"it is {type(value).__name__}")
    return value


def _from_union(branches: list[Any], how: _AvroReading) -> Schema:
    real = [branch for branch in branches if branch != "null"]
    optional = len(real) != len(branches)
    if not real:
        raise DataError("Standalone null schemas are not supported by this converter")
    if len(real) == 1:
        return _read(real[0], how).as_optional(optional)
    fields = [(branch_name(branch, enhanced=how.enhanced), _read(branch, how).as_optional()) for branch in real]
    if len({name for name, _ in fields}) < len(fields):
        raise DataError("Multiple union schemas map to the Connect union field name")
    return struct(fields, name=UNION, optional=optional)


def branch_name(branch: Any, *, enhanced: bool = False) -> str:
    """Return the name of a union's branch: that of its type, or of its record, without namespace unless enhanced."""
    if isinstance(branch, str):
        return branch if enhanced else branch.rpartition(".")[2]
    if branch["type"] not in NAMED:
        return branch_name(branch["type"], enhanced=enhanced)
    full = _full_name(branch)
    return full if enhanced else full.rpartition(".")[2]


def is_entry_list(schema: Mapping[str, Any]) -> bool:
    """Return whether an array is a map whose keys are not strings."""
    items = schema["items"]
    if not isinstance(items, dict) or items.get("type") != "record":
        return False
    if [part["name"] for part in items["fields"]] != ["key", "value"]:
        return False
    return items.get("connect.internal.type") == ENTRY or _full_name(items).rstrip("_") == f"{NAMESPACE}.{ENTRY}"


def named(schema: Any, namespace: str = "") -> Any:
    """Return the schema with each namespace that a named type or a reference to one inherits written out.

    >>> named({"type": "record", "name": "a.B", "fields": [{"name": "c", "type": ["null", "B"]}]})["fields"]
    [{'name': 'c', 'type': ['null', 'a.B']}]
    """
    if isinstance(schema, list):
        return [named(part, namespace) for part in schema]
    if isinstance(schema, str):
        is_own = namespace and "." not in schema and schema != "null" and schema not in READ and schema not in COMPLEX
        return f"{namespace}.{schema}" if is_own else schema
    if not isinstance(schema, dict):
        return schema
    full_schema = dict(schema)
    if full_schema.get("type") in NAMED:
        namespace = str(full_schema["name"]).rpartition(".")[0] or full_schema.get("namespace", namespace)
        full_schema["namespace"] = namespace
    for part in ("type", "items", "values"):
        if part in full_schema:
            full_schema[part] = named(full_schema[part], namespace)
    if "fields" in full_schema:
        full_schema["fields"] = [{**field, "type": named(field["type"], namespace)} for field in full_schema["fields"]]
    return full_schema


def _full_name(schema: Mapping[str, Any]) -> str:
    name = str(schema["name"])
    return name if "." in name or not schema.get("namespace") else f"{schema['namespace']}.{name}"


def _union(schema: Schema) -> bool:
    return schema.type is Type.STRUCT and schema.name == UNION


def _known(schema: Schema | None) -> Schema:
    if schema is None:
        raise DataError("an array or map whose elements have no schema in common has no Avro schema")
    return schema
