"""Connect's schemas as Avro's and back, by the rules of Confluent's ``AvroData``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.connect.data import DATE, TIME, TIMESTAMP, DataError, Moment, Schema, Struct, Type, map_of, struct
from penstock.connect.data import array as array_of
from penstock.connect.data.logical import DATE_NAME, DECIMAL_NAME, TIME_NAME, TIMESTAMP_NAME, decimal_to_bytes

__all__ = ["ENUM", "UNION", "branch_name", "from_avro", "is_entry_list", "named", "to_avro"]

NAMESPACE, DEFAULT_NAME = "io.confluent.connect.avro", "ConnectDefault"
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


def to_avro(schema: Schema, *, metadata: bool = True, seen: set[str] | None = None) -> Any:
    """Avro's schema of Connect's, as JSON.

    Args:
        schema: Connect's schema.
        metadata: Keep what Avro has no place for as ``connect.*`` properties.
        seen: The names of records that were written already; a second time, the name stands for the record.

    Example:
        >>> from penstock.connect.data import INT8, OPTIONAL_STRING
        >>> to_avro(INT8), to_avro(OPTIONAL_STRING)
        ({'type': 'int', 'connect.type': 'int8'}, ['null', 'string'])
    """
    known = set() if seen is None else seen
    made = _base(schema, known, metadata=metadata)
    if not schema.optional:
        return made
    return ["null", made] if schema.default is None else [made, "null"]


def _base(schema: Schema, seen: set[str], *, metadata: bool) -> Any:
    made: dict[str, Any]
    if _union(schema):
        return [_base(part.schema, seen, metadata=metadata) for part in schema.fields]
    match schema.type:
        case Type.STRUCT:
            full = schema.name or f"{NAMESPACE}.{DEFAULT_NAME}{len(seen) or ''}"
            if full in seen:
                return full
            seen.add(full)
            namespace, _, name = full.rpartition(".")
            made = {"type": "record", "name": name, **({"namespace": namespace} if namespace else {})}
            made["fields"] = [_field(part.name, part.schema, seen, metadata=metadata) for part in schema.fields]
        case Type.ARRAY:
            made = {"type": "array", "items": to_avro(_known(schema.values), metadata=metadata, seen=seen)}
        case Type.MAP:
            keys, values = _known(schema.keys), to_avro(_known(schema.values), metadata=metadata, seen=seen)
            if keys.type is Type.STRING and not keys.optional:
                made = {"type": "map", "values": values}
            else:
                made = {"type": "array", "items": _entry(to_avro(keys, metadata=metadata, seen=seen), values, seen)}
        case _:
            made = _simple(schema)
    return _with_metadata(made, schema) if metadata else made


def _simple(schema: Schema) -> dict[str, Any]:
    parameters = schema.parameters or {}
    if schema.type is Type.STRING and ENUM in parameters:
        namespace, _, name = parameters[ENUM].rpartition(".")
        symbols = [value for key, value in parameters.items() if key.startswith(f"{ENUM}.")]
        return {"type": "enum", "name": name, **({"namespace": namespace} if namespace else {}), "symbols": symbols}
    made: dict[str, Any] = {"type": SIMPLE[schema.type]}
    if schema.name == DECIMAL_NAME:
        made |= {"scale": int(parameters["scale"]), "precision": int(parameters.get(PRECISION, 64))}
    if schema.type in (Type.INT8, Type.INT16):
        made["connect.type"] = schema.type.value
    if schema.name in LOGICAL:
        made["logicalType"] = LOGICAL[schema.name]
    return made


def _with_metadata(made: dict[str, Any], schema: Schema) -> Any:
    if schema.doc is not None:
        made["connect.doc"] = schema.doc
    if schema.version is not None:
        made["connect.version"] = schema.version
    if schema.parameters and made["type"] != "enum":
        made["connect.parameters"] = dict(schema.parameters)
    if schema.default is not None:
        made["connect.default"] = _default(schema, schema.default)
    if schema.name is not None:
        made["connect.name"] = schema.name
    return made["type"] if set(made) == {"type"} else made


def _field(name: str, schema: Schema, seen: set[str], *, metadata: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "type": to_avro(schema, metadata=metadata, seen=seen)}
    if schema.doc is not None:
        made["doc"] = schema.doc
    if schema.default is not None:
        made["default"] = _default(schema, schema.default)
    elif schema.optional:
        made["default"] = None
    return made


def _entry(key: Any, value: Any, seen: set[str]) -> Any:
    full = f"{NAMESPACE}.MapEntry"
    while full in seen:
        full += "_"
    seen.add(full)
    fields = [{"name": "key", "type": key}, {"name": "value", "type": value}]
    return {"type": "record", "name": full.rpartition(".")[2], "namespace": NAMESPACE, "fields": fields}


def _default(schema: Schema, value: Any) -> Any:
    if isinstance(value, Struct):
        return {part.name: _default(part.schema, value[part.name]) for part in value.schema.fields}
    if schema.name == DECIMAL_NAME:
        return decimal_to_bytes(schema, value).decode("latin-1")
    if isinstance(value, Moment):
        return value.ms // 86_400_000 if schema.name == DATE_NAME else value.ms
    return value.decode("latin-1") if isinstance(value, bytes) else value


def from_avro(schema: Any, named: dict[str, Any] | None = None) -> Schema:
    """Connect's schema of Avro's JSON.

    Raises:
        DataError: It refers to itself, or to a name that is not defined.

    Example:
        >>> str(from_avro(["null", {"type": "int", "logicalType": "date"}]))
        'Schema{org.apache.kafka.connect.data.Date:INT32}'
    """
    known = {} if named is None else named
    if isinstance(schema, list):
        return _from_union(schema, known)
    if isinstance(schema, str):
        if schema in READ:
            return Schema(READ[schema])
        if schema not in known:
            raise DataError(f"the Avro schema refers to {schema}, which is not defined before, or to itself")
        found: Schema = known[schema]
        return found
    kind = schema["type"]
    if isinstance(kind, list | dict):
        return from_avro(kind, known)
    return _restored(_read_kind(kind, schema, known), schema)


def _read_kind(kind: str, schema: Mapping[str, Any], known: dict[str, Any]) -> Schema:
    if kind in ("record", "error"):
        fields = [(field["name"], _read_field(field, known)) for field in schema["fields"]]
        full = _full_name(schema)
        made = struct(fields, name=None if full.startswith(f"{NAMESPACE}.{DEFAULT_NAME}") else full)
        known[full] = known[schema["name"]] = made
        return made
    if kind == "enum":
        full = _full_name(schema)
        parameters = {ENUM: full, **{f"{ENUM}.{symbol}": symbol for symbol in schema["symbols"]}}
        made = Schema(Type.STRING, parameters=parameters)
        known[full] = known[schema["name"]] = made
        return made
    if kind == "fixed":
        made = Schema(Type.BYTES, name=_full_name(schema), parameters={FIXED: str(schema["size"])})
        known[_full_name(schema)] = known[schema["name"]] = made
        return made
    if kind == "array":
        if is_entry_list(schema):
            key, value = (from_avro(field["type"], known) for field in schema["items"]["fields"])
            return map_of(key, value)
        return array_of(from_avro(schema["items"], known))
    if kind == "map":
        return map_of(Schema(Type.STRING), from_avro(schema["values"], known))
    if schema.get("logicalType") == "decimal":
        parameters = {"scale": str(schema.get("scale", 0))}
        if schema.get("precision", 64) != 64:
            parameters[PRECISION] = str(schema["precision"])
        return Schema(Type.BYTES, name=DECIMAL_NAME, version=1, parameters=parameters)
    logical = {"date": DATE, "time-millis": TIME, "timestamp-millis": TIMESTAMP}.get(schema.get("logicalType", ""))
    return logical or from_avro(kind, known)


def _restored(made: Schema, schema: Mapping[str, Any]) -> Schema:
    changes: dict[str, Any] = {}
    if schema.get("connect.type") in SMALL:
        changes["type"] = SMALL[schema["connect.type"]]
    for name in ("doc", "version", "name"):
        if f"connect.{name}" in schema:
            changes[name] = schema[f"connect.{name}"]
    if "connect.parameters" in schema:
        changes["parameters"] = {**(made.parameters or {}), **schema["connect.parameters"]}
    made = replace(made, **changes) if changes else made
    if "connect.default" in schema:
        made = replace(made, default=_read_default(made, schema["connect.default"]))
    return made


def _read_field(field: Mapping[str, Any], known: dict[str, Any]) -> Schema:
    made = from_avro(field["type"], known)
    if made.default is None and field.get("default") is not None:
        made = replace(made, default=_read_default(made, field["default"]))
    if made.doc is None and field.get("doc") is not None:
        made = replace(made, doc=field["doc"])
    return made


def _read_default(schema: Schema, value: Any) -> Any:
    if schema.type is Type.BYTES:
        from penstock.connect.data.logical import decimal_from_bytes

        data = value.encode("latin-1")
        return decimal_from_bytes(schema, data) if schema.name == DECIMAL_NAME else data
    if schema.type is Type.STRUCT and isinstance(value, dict):
        known = {part.name: part.schema for part in schema.fields}
        return Struct(schema, {key: _read_default(known[key], each) for key, each in value.items() if each is not None})
    if schema.name == DATE_NAME:
        return Moment(value * 86_400_000)
    return Moment(value) if schema.name in (TIME_NAME, TIMESTAMP_NAME) else value


def _from_union(branches: list[Any], known: dict[str, Any]) -> Schema:
    real = [branch for branch in branches if branch != "null"]
    optional = len(real) != len(branches)
    if len(real) == 1:
        return from_avro(real[0], known).as_optional(optional)
    fields = [(branch_name(branch), from_avro(branch, known).as_optional()) for branch in real]
    return struct(fields, name=UNION, optional=optional)


def branch_name(branch: Any) -> str:
    """The name of a union's branch: that of its type, or of its record without namespace."""
    if isinstance(branch, str):
        return branch.rpartition(".")[2]
    named = branch["type"] in ("record", "enum", "fixed")
    return str(branch["name"] if named else branch["type"]).rpartition(".")[2]


def is_entry_list(schema: Mapping[str, Any]) -> bool:
    """Whether an array is a map whose keys are not strings."""
    items = schema["items"]
    if not isinstance(items, dict) or items.get("type") != "record":
        return False
    names = [field["name"] for field in items["fields"]]
    return names == ["key", "value"] and _full_name(items).startswith(f"{NAMESPACE}.MapEntry")


def named(schema: Any, namespace: str = "") -> Any:
    """The schema with the namespace that each named type inherits written into it.

    >>> named({"type": "record", "name": "a.B", "fields": [{"name": "c", "type": {"type": "fixed", "name": "D"}}]})[
    ...     "fields"
    ... ][0]["type"]["namespace"]
    'a'
    """
    if isinstance(schema, list):
        return [named(part, namespace) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    if made.get("type") in ("record", "error", "enum", "fixed"):
        within = str(made["name"]).rpartition(".")[0] or made.get("namespace", namespace)
        if within:
            made["namespace"] = namespace = within
    for part in ("type", "items", "values"):
        if isinstance(made.get(part), dict | list):
            made[part] = named(made[part], namespace)
    if "fields" in made:
        made["fields"] = [{**field, "type": named(field["type"], namespace)} for field in made["fields"]]
    return made


def _full_name(schema: Mapping[str, Any]) -> str:
    name = str(schema["name"])
    return name if "." in name or not schema.get("namespace") else f"{schema['namespace']}.{name}"


def _union(schema: Schema) -> bool:
    return schema.type is Type.STRUCT and schema.name == UNION


def _known(schema: Schema | None) -> Schema:
    if schema is None:
        raise DataError("an array or map whose elements have no schema in common has no Avro schema")
    return schema
