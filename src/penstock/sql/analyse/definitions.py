"""CREATE of streams, tables and types: columns, keys and properties, and formats that can hold them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from penstock.base.nearest_name import did_you_mean
from penstock.errors import SqlError
from penstock.sql.analyse.properties import Properties
from penstock.sql.analyse.statement_errors import refusal
from penstock.sql.catalog import RESERVED_COLUMNS, Catalog, DataFormat, Source, SourceColumn, TimestampColumn
from penstock.sql.evaluate import sql_type
from penstock.sql.formats import check_columns, format_info
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.tokens import TextPosition
from penstock.sql.types import BIGINT, BYTES, STRING, TIMESTAMP, ArrayType, MapType, SqlType, StructType
from penstock.sql.types.sql_type import inner_types, quoted

__all__ = [
    "alter_source",
    "check_formats",
    "check_key_types",
    "check_timestamp",
    "create_source",
    "replaceable",
    "wrapping",
]


def check_key_types(columns: Iterable[tuple[str, SqlType]], at: TextPosition) -> None:
    """Refuse keys that hold maps: equal maps may have different bytes."""
    for name, kind in columns:
        if _holds_map(kind):
            raise refusal(
                at,
                f"The key column {quoted(name)} of type {kind} holds a MAP. Map keys cannot be used: "
                "equal maps may have different bytes.",
            )


def check_formats(columns: Iterable[SourceColumn], key: DataFormat, value: DataFormat, at: TextPosition) -> None:
    """Refuse columns that the formats of key and value cannot hold."""
    held = tuple(columns)
    keys = tuple((column.name, column.type) for column in held if column.is_key)
    values = tuple((column.name, column.type) for column in held if column.role == "VALUE")
    check_key_types(keys, at)
    for form, part, among in ((key, "key", keys), (value, "value", values)):
        try:
            check_columns(form.name, among, part)
        except SqlError as error:
            shown = ", ".join(f"{quoted(name)} {kind}" for name, kind in among)
            reason = f"The {part.lower()} columns {shown} do not fit the {part.lower()} format {form.name}: "
            several = part == "key" and len(among) > 1
            hint = error.hint or ("Write KEY_FORMAT='JSON' into WITH: it holds several columns." if several else "")
            raise refusal(at, reason + error.message, hint) from None


def wrapping(wrap: bool | None, form: DataFormat, count: int, catalog: Catalog, at: TextPosition) -> DataFormat:  # noqa: FBT001
    """Return the format of a value with how its single column is written: WRAP_SINGLE_VALUE, or the setting.

    Raises:
        SqlError: The format cannot do that, or there are several columns.
    """
    info = format_info(form.name)
    if wrap is not None:
        if not (info.wraps if wrap else info.unwraps):
            raise refusal(
                at, f"'WRAP_SINGLE_VALUE' = '{str(wrap).lower()}' cannot be had from the format '{form.name}'."
            )
        if count != 1:
            raise refusal(at, "'WRAP_SINGLE_VALUE' needs a value schema of a single field")
        return replace(form, wrap=wrap)
    text = catalog.setting("ksql.persistence.wrap.single.values").lower()
    if count == 1 and text in ("true", "false") and (info.wraps if text == "true" else info.unwraps):
        return replace(form, wrap=text == "true")
    return replace(form, wrap=None)


def _holds_map(kind: SqlType) -> bool:
    return isinstance(kind, MapType) or any(map(_holds_map, inner_types(kind)))


HEADERS_TYPE = ArrayType(StructType.of(KEY=STRING, VALUE=BYTES))


def create_source(statement: s.CreateSource, catalog: Catalog, text: str) -> Source | None:
    """Return the source that a statement makes; None if it exists and the statement says IF NOT EXISTS.

    Raises:
        SqlError: The statement cannot be done.
    """
    kind = statement.kind.lower()
    existing = catalog.sources.get(statement.name)
    if existing is not None and statement.if_not_exists:
        return None
    if statement.or_replace and (statement.read_only or (existing and existing.read_only)):
        raise refusal(
            statement.at,
            f"'{statement.name}' is a source {kind}, which CREATE OR REPLACE cannot replace.",
        )
    if existing is not None and not statement.or_replace:
        raise refusal(
            statement.at,
            f"Cannot add {kind} '{statement.name}': A {existing.kind.lower()} with the same name already exists",
            "Choose another name, drop the other one, or write CREATE OR REPLACE.",
        )
    properties = Properties.of(statement.properties)
    columns = _columns(statement, catalog)
    key_name, value_name = properties.default_formats(catalog)
    topic = properties.text("KAFKA_TOPIC")
    if topic is None:
        raise refusal(
            statement.at, 'Missing required property "KAFKA_TOPIC" which has no default value.', "Name the topic."
        )
    has_key = any(column.is_key for column in columns)
    key = properties.format("KEY", None, key_name)
    value = properties.format("VALUE", None, value_name)
    if value is None:
        raise refusal(
            statement.at,
            "Statement is missing the 'VALUE_FORMAT' property from the WITH clause",
            "Write VALUE_FORMAT or FORMAT, or set ksql.persistence.default.format.value.",
        )
    assert key is not None, "there is a default format of keys"  # noqa: S101
    forms = (key, replace(value, wrap=properties.flag("WRAP_SINGLE_VALUE")))
    columns = _inferred(statement, properties, catalog, columns, (topic, *forms))
    has_key = any(column.is_key for column in columns)
    if not has_key and properties.format_name("KEY") is None:
        key = DataFormat("NONE")
    _check_keys(statement, columns)
    values = [column for column in columns if column.role == "VALUE"]
    if not columns:
        raise refusal(
            statement.at,
            "The statement does not define any columns.",
            f"The format {value.name} cannot infer them: list the columns.",
        )
    value = wrapping(
        properties.flag("WRAP_SINGLE_VALUE"), value, len(values), catalog, properties.at("WRAP_SINGLE_VALUE")
    )
    check_formats(columns, key, value, statement.at)
    window = properties.window()
    if window is not None and not has_key:
        raise refusal(properties.at("WINDOW_TYPE"), "A windowed source needs a key column, and none is declared.")
    timestamp = properties.timestamp()
    if timestamp is not None:
        check_timestamp(timestamp, columns, properties.at("TIMESTAMP"))
    partitions = properties.number("PARTITIONS")
    return Source(
        name=statement.name,
        kind=statement.kind,
        columns=columns,
        topic=topic,
        key_format=key,
        value_format=value,
        window=window,
        timestamp=timestamp,
        partitions=partitions,
        replicas=properties.number("REPLICAS"),
        read_only=statement.read_only,
        text=text,
    )


def _columns(statement: s.CreateSource, catalog: Catalog) -> tuple[SourceColumn, ...]:
    columns_by_name: dict[str, SourceColumn] = {}
    for column in statement.columns:
        if column.name in RESERVED_COLUMNS:
            raise refusal(column.at, f"'{column.name}' is reserved: no column may be declared under that name.")
        if column.name in columns_by_name:
            raise refusal(column.at, f"Duplicate column names: {column.name}")
        if column.role == "KEY" and statement.kind == "TABLE":
            raise refusal(
                column.at,
                f"Table column `{column.name}` is declared KEY; a table takes PRIMARY KEY.",
                "Tables have PRIMARY KEY columns and streams have KEY columns.",
            )
        if column.role == "PRIMARY KEY" and statement.kind == "STREAM":
            raise refusal(
                column.at,
                f"Stream column `{column.name}` is declared PRIMARY KEY; a stream takes KEY.",
                "Tables have PRIMARY KEY columns and streams have KEY columns.",
            )
        kind = sql_type(column.type, catalog.types)
        if column.role == "HEADERS" and kind != HEADERS_TYPE:
            raise refusal(column.at, f"Invalid type for HEADERS column: expected {HEADERS_TYPE}, got {kind}")
        if column.role == "HEADER" and kind != BYTES:
            raise refusal(column.at, f"Invalid type for HEADER('{column.header}') column: expected BYTES, got {kind}")
        columns_by_name[column.name] = SourceColumn(column.name, kind, column.role, column.header)
    roles = [column.role for column in columns_by_name.values()]
    if roles.count("HEADERS") > 1 or ("HEADERS" in roles and "HEADER" in roles):
        raise refusal(statement.at, "Only one column can be declared as HEADERS, and then none as HEADER('name').")
    headers = [column.header for column in columns_by_name.values() if column.role == "HEADER"]
    if len(set(headers)) < len(headers):
        raise refusal(statement.at, "Two columns cannot read the same header.")
    return tuple(columns_by_name.values())


def _inferred(
    statement: s.CreateSource,
    properties: Properties,
    catalog: Catalog,
    columns: tuple[SourceColumn, ...],
    topic: tuple[str, DataFormat, DataFormat],
) -> tuple[SourceColumn, ...]:
    """Return the columns, with those that a registry says in place of those that the statement leaves out."""
    name, key, value = topic
    for part, form in (("KEY", key), ("VALUE", value)):
        setting = f"{part}_SCHEMA_ID"
        if setting not in properties.values:
            continue
        if not format_info(form.name).infers:
            raise refusal(
                properties.at(setting),
                f"{setting} needs a {part}_FORMAT with schema inference from the registry; {form.name} has none.",
            )
        if any(column.is_key == (part == "KEY") and not column.is_header for column in columns):
            raise refusal(
                properties.at(setting),
                f"{setting} is given together with table elements (columns); a CREATE takes only one of the two.",
            )
    all_columns: list[SourceColumn] = []
    if not any(column.is_key for column in columns) and format_info(key.name).infers:
        role: s.ColumnRole = "PRIMARY KEY" if statement.kind == "TABLE" else "KEY"
        inferred = catalog.infer(name, "key", key) if catalog.infer else None
        if inferred is None and (properties.text("KEY_SCHEMA_ID") or properties.text("KEY_SCHEMA_FULL_NAME")):
            raise _no_schema(properties, "KEY_SCHEMA_ID", "keys", name)
        all_columns += [SourceColumn(column, kind, role) for column, kind in inferred or ()]
    all_columns += [column for column in columns if column.name not in {each.name for each in all_columns}]
    has_values = any(column.role == "VALUE" for column in columns)
    if not has_values and name in catalog.typed and value.name in {"JSON", "JSON_SR"}:
        all_columns += [SourceColumn(column, kind) for column, kind in catalog.typed[name]]
    elif not has_values and format_info(value.name).infers:
        wrapped = replace(value, wrap=properties.flag("WRAP_SINGLE_VALUE"))
        inferred = catalog.infer(name, "value", wrapped) if catalog.infer else None
        if inferred is None:
            raise _no_schema(properties, "VALUE_SCHEMA_ID", "values", name)
        all_columns += [SourceColumn(column, kind) for column, kind in inferred]
    return tuple(all_columns)


def _no_schema(properties: Properties, setting: str, what: str, topic: str) -> Exception:
    return refusal(
        properties.at(setting),
        f"The Schema Registry has no schema of the {what} of topic '{topic}'.",
        "Register the schema, or list the columns.",
    )


def _check_keys(statement: s.CreateSource, columns: Sequence[SourceColumn]) -> None:
    if statement.kind == "TABLE" and not any(column.is_key for column in columns):
        raise refusal(
            statement.at,
            "Tables require a PRIMARY KEY. Please define the PRIMARY KEY.",
            "For example (ID INT PRIMARY KEY, ...).",
        )


def check_timestamp(timestamp: TimestampColumn, columns: Sequence[SourceColumn], at: TextPosition) -> None:
    """Refuse a TIMESTAMP that no column of the right type has."""
    column = next((each for each in columns if each.name == timestamp.name), None)
    if column is None:
        raise refusal(at, f"TIMESTAMP in WITH names '{timestamp.name}', and the source schema has no such column.")
    if timestamp.pattern is None and column.type not in (BIGINT, TIMESTAMP):
        what = "a TIMESTAMP_FORMAT is needed" if column.type == STRING else f"it is {column.type}"
        raise refusal(at, f"Timestamp column, {timestamp.name}, should be LONG(INT64) or TIMESTAMP: {what}")
    if timestamp.pattern is not None and column.type != STRING:
        raise refusal(at, f"Timestamp column, {timestamp.name}, has a TIMESTAMP_FORMAT, so it should be STRING")


def replaceable(old: Source, new: Source, at: TextPosition) -> Source:
    """Return the source that takes the place of another; only columns at the end may be new.

    Raises:
        SqlError: The new one is of another kind, or changes more.
    """
    what = f"Cannot upgrade data source: {new.kind.capitalize()} {new.name!r}"
    if old.kind != new.kind:
        raise refusal(at, f"{what} was a {old.kind.lower()} and cannot become a {new.kind.lower()}")
    for part, before, after in (("key", old.keys, new.keys), ("value", old.values, new.values)):
        kept = after[: len(before)]
        if kept != before or (part == "key" and len(after) != len(before)):
            lost = ", ".join(str(column) for column in before if column not in after) or "their order"
            raise refusal(at, f"{what}: existing {part} columns must stay as they are; not kept: [{lost}]")
    for word, one, two in (
        ("topic", old.topic, new.topic),
        ("key format", old.key_format.name, new.key_format.name),
        ("value format", old.value_format.name, new.value_format.name),
    ):
        if one != two:
            raise refusal(at, f"{what}: the {word} {one} cannot become {two}")
    return new


def alter_source(statement: s.AlterSource, catalog: Catalog) -> Source:
    """Return the source with the columns that ALTER adds."""
    source = catalog.sources.get(statement.name)
    kind = statement.kind.lower()
    if source is None:
        raise refusal(
            statement.at, f"Source {statement.name} does not exist.", did_you_mean(statement.name, catalog.sources)
        )
    if source.kind != statement.kind:
        raise refusal(statement.at, f"Incompatible data source type is {source.kind}, but statement was ALTER {kind}")
    if source.read_only:
        raise refusal(
            statement.at,
            f"'{source.name}' is a source {kind}, which ALTER cannot change.",
        )
    if source.query is not None:
        raise refusal(statement.at, f"ALTER command is not supported for CREATE ... AS statements: {source.name}")
    columns = list(source.columns)
    for added in statement.columns:
        if added.name in {column.name for column in columns}:
            raise refusal(added.at, f"Cannot add column {added.name}: a column with the same name already exists.")
        columns.append(SourceColumn(added.name, sql_type(added.type, catalog.types)))
    check_formats(columns, source.key_format, source.value_format, statement.at)
    return replace(source, columns=tuple(columns))
