"""Test cases as files have them, made one for each format and configuration, with the serdes of their topics."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

from penstock.errors import SqlError
from penstock.serde.bound_serdes import bound
from penstock.serde.registry import Reference, StoredSchema
from penstock.serde.windowed import Window
from penstock.sql.catalog import DataFormat, Source, SourceWindow
from penstock.sql.compile.serdes import format_properties, format_serde
from penstock.sql.formats import FormatProperties, RowSerde, format_info, inferred_columns, row_format
from penstock.sql.types import (
    BIGINT,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    SqlType,
    StructType,
)
from penstock.sql.types.numbers import fit
from penstock.sql.types.texts import date_of, days_of, millis_of_day, time_of
from penstock.testing import EmbeddedRegistry

__all__ = ["CaseRecord", "CaseSchemas", "SqlCase", "TestTopic", "case_of_files", "load_cases"]

FRAME = 5  # bytes before a value: a zero and the number of its schema
REFERENCES = 10_000  # the number of the first schema that others refer to: behind those that statements name
KINDS = {"JSON_SR": "JSON", "JSON": "JSON", "AVRO": "AVRO", "PROTOBUF": "PROTOBUF"}


class CaseSchemas:
    """An empty registry that takes any change of a schema. Close it, or use it in ``with``."""

    def __init__(self) -> None:
        self._embedded = EmbeddedRegistry()
        self._embedded.registry.set_config("", {"compatibility": "NONE"})
        self._ids: dict[str, int] = {}
        self._references = 0

    @property
    def settings(self) -> dict[str, str]:
        """The settings of an application that uses it."""
        return {"schema.registry.url": self._embedded.url}

    def close(self) -> None:
        """Forget all schemas."""
        self._embedded.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def register(self, topics: Sequence[Mapping[str, Any]], declared: Iterable[Source] = ()) -> None:
        """Register the schemas of topics: first those of columns that statements declare, then those of the case.

        Statements name schemas by their numbers, which follow from this order unless the case says them.
        """
        topic_parts = [(topic, part) for topic in topics for part in ("key", "value") if topic.get(f"{part}Schema")]
        said = {f"{topic['name']}-{part}" for topic, part in topic_parts}
        for source in declared:
            forms = (source.key_format, source.keys, "key"), (source.value_format, source.values, "value")
            for form, columns, part in forms:
                if columns and format_info(form.name).infers and f"{source.topic}-{part}" not in said:
                    pairs = [(column.name, column.type) for column in columns]
                    serde = self.serde(form, pairs, source.topic, part).schema_serde
                    assert serde is not None, "its format has schemas"  # noqa: S101
                    serde.target()
        for topic, part in topic_parts:
            schema, kind = topic[f"{part}Schema"], _form(topic.get(f"{part}Format"))
            references = tuple(self._reference(each) for each in topic.get(f"{part}SchemaReferences") or ())
            stored_schema = StoredSchema(schema if kind == "PROTOBUF" else json.dumps(schema), KINDS[kind], references)
            subject = f"{topic['name']}-{part}"
            self._ids[subject] = self._add(subject, stored_schema, topic.get(f"{part}SchemaId"))

    def _reference(self, reference: Mapping[str, Any]) -> Reference:
        form, schema = _form(reference.get("format")), reference["schema"]
        text = schema if form == "PROTOBUF" else json.dumps(schema)
        self._references += 1
        self._add(reference["name"], StoredSchema(text, KINDS[form]), REFERENCES + self._references)
        return Reference(reference["name"], reference["name"], 1)

    def _add(self, subject: str, schema: StoredSchema, number: int | None) -> int:
        registry = self._embedded.registry
        if number is None:
            numbers = [version.schema_id for version in registry.all_versions()]
            number = max((schema_id for schema_id in numbers if schema_id < REFERENCES), default=0) + 1
        registry.set_mode("", "IMPORT")
        try:
            return registry.register(subject, schema, int(number)).schema_id
        finally:
            registry.set_mode("", "READWRITE")

    def infer(self, topic: str, part: str, form: DataFormat) -> Sequence[tuple[str, SqlType]] | None:
        """Return the columns of the keys or values of a topic, as statements without columns take them."""
        return inferred_columns(form.name, topic, self._properties(form, part))

    def serde(self, form: DataFormat, columns: Sequence[tuple[str, SqlType]], topic: str, part: str) -> RowSerde:
        """Return the serde of a topic's keys or values."""
        row_serde = row_format(form.name, columns, self._properties(form, part))
        bound_serde: RowSerde = bound(row_serde, topic, part)
        return bound_serde

    def writer(self, form: DataFormat, columns: Sequence[tuple[str, SqlType]], topic: str, part: str) -> RowSerde:
        """Return the serde that writes inputs.

        With the schema that the case gives the subject, else with that of columns.
        """
        number = self._ids.get(f"{topic}-{part}")
        return self.serde(form, columns, topic, part) if number is None else self._by_id(form, number, topic, part)

    def reader(self, form: DataFormat, data: bytes, topic: str, part: str) -> RowSerde:
        """Return the serde that reads a value with all columns of the schema that it was written with."""
        return self._by_id(form, int.from_bytes(data[1:FRAME], "big"), topic, part)

    def _by_id(self, form: DataFormat, number: int, topic: str, part: str) -> RowSerde:
        properties = replace(self._properties(form, part), schema_id=number, wrapped=True)
        columns = inferred_columns(form.name, topic, properties) or ()
        single = inferred_columns(form.name, topic, replace(properties, wrapped=False)) == columns
        single = single and form.name != "PROTOBUF"
        row_serde = row_format(form.name, columns, replace(properties, wrapped=not single))
        bound_serde: RowSerde = bound(row_serde, topic, part)
        return bound_serde

    def _properties(self, form: DataFormat, part: str) -> FormatProperties:
        registry = self.settings if format_info(form.name).infers else {}
        return replace(format_properties(form, part), registry=registry)


def _form(format_entry: Any) -> str:
    name = format_entry.get("format") if isinstance(format_entry, Mapping) else format_entry
    return str(name or "AVRO").upper()


_LONG = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class CaseRecord:
    """A record of a topic, as bytes."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(slots=True)
class TestTopic:
    """A topic with its records and formats."""

    name: str
    key_format: DataFormat
    value_format: DataFormat
    keys: tuple[tuple[str, SqlType], ...] = ()
    values: tuple[tuple[str, SqlType], ...] = ()
    window: SourceWindow | None = None
    schemas: CaseSchemas | None = None
    exact: bool = True
    records: list[CaseRecord] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, source: Source | None, schemas: CaseSchemas) -> TestTopic:
        """Return the topic of a source; of a topic without source the values are JSON."""
        if source is None:
            return cls(name, DataFormat("KAFKA"), DataFormat("JSON"), (("KEY", STRING),))
        return cls(
            name,
            source.key_format,
            source.value_format,
            tuple((column.name, column.type) for column in source.keys),
            tuple((column.name, column.type) for column in source.values),
            source.window,
            schemas,
        )

    def add(self, record: Mapping[str, Any]) -> CaseRecord:
        """Write a record of a case."""
        key = self._encoded(record.get("key"), "key")
        if key is not None and (window := record.get("window")) is not None:
            start, end = int(window["start"]), int(window["end"])
            key += _LONG.pack(start) if window.get("type") == "time" else _LONG.pack(end) + _LONG.pack(start)
        value = self._encoded(record.get("value"), "value")
        headers = tuple(
            (header["KEY"], None if header["VALUE"] is None else base64.b64decode(header["VALUE"]))
            for header in record.get("headers") or ()
        )
        case_record = CaseRecord(key, value, int(record.get("timestamp", 0)), headers)
        self.records.append(case_record)
        return case_record

    def key_of(self, record: CaseRecord) -> tuple[Any, Window | None]:
        """Return the key of a record as cases compare it, and its window."""
        data, window = record.key, None
        if data is not None and self.window is not None:
            if self.window.size_ms is None:
                window = Window(_LONG.unpack(data[-8:])[0], _LONG.unpack(data[-16:-8])[0])
                data = data[:-16]
            else:
                start = _LONG.unpack(data[-8:])[0]
                window = Window(start, start + self.window.size_ms)
                data = data[:-8]
        return self._decoded(data, "key"), window

    def plain_key(self, record: CaseRecord) -> bytes | None:
        """Return the bytes of a key without its window, by which Kafka chooses the partition."""
        if record.key is None or self.window is None:
            return record.key
        return record.key[: -_LONG.size * (2 if self.window.size_ms is None else 1)]

    def value_of(self, record: CaseRecord) -> Any:
        """Return the value of a record as cases compare it."""
        if not self.exact and self.value_format.name == "JSON" and record.value is not None:
            return json.loads(record.value)
        return self._decoded(record.value, "value")

    def _encoded(self, value: Any, part: str) -> bytes | None:
        form, columns = self._form(part)
        if value is None or self.schemas is None or not format_info(form.name).infers:
            return encoded(value, form, columns, part)
        serde = self.schemas.writer(form, columns, self.name, part)
        value_bytes: bytes | None = serde.serialize(_row(value, serde.columns, unwrapped=serde.unwrapped))
        return value_bytes

    def _decoded(self, data: bytes | None, part: str) -> Any:
        form, columns = self._form(part)
        if data is None or self.schemas is None or not format_info(form.name).infers:
            return decoded(data, form, columns, part)
        return _shown(self.schemas.reader(form, data, self.name, part), data)

    def _form(self, part: str) -> tuple[DataFormat, tuple[tuple[str, SqlType], ...]]:
        return (self.key_format, self.keys) if part == "key" else (self.value_format, self.values)


def encoded(value: Any, form: DataFormat, columns: Sequence[tuple[str, SqlType]], part: str) -> bytes | None:
    """Return the bytes of a value of a case."""
    if form.name == "NONE":
        return None
    if form.name == "JSON":
        return None if value is None else _dumps(value).encode()
    if value is None:
        return None
    if form.name == "DELIMITED":
        return str(value).encode()
    if form.name == "KAFKA":
        kind = columns[0][1] if columns else STRING
        if isinstance(value, dict) and len(value) == 1:
            value = next(iter(value.values()))
        return _kafka(value, kind)
    serde = format_serde(form, columns, part)
    row = _row(value, columns, unwrapped=getattr(serde, "unwrapped", False))
    value_bytes: bytes | None = serde.serialize(row)
    return value_bytes


def decoded(data: bytes | None, form: DataFormat, columns: Sequence[tuple[str, SqlType]], part: str) -> Any:
    """Return the value that bytes stand for, as cases have it."""
    if data is None or form.name == "NONE":
        return None
    if form.name == "JSON":
        return json.loads(data, parse_float=Decimal)
    if form.name == "DELIMITED":
        return data.decode()
    serde = format_serde(form, columns, part)
    if form.name == "KAFKA":
        return serde.deserialize(data)[0]
    return _shown(serde, data)


def _shown(serde: RowSerde, data: bytes) -> Any:
    """Return the value of bytes as cases compare it."""
    row = serde.deserialize(data)
    if row is None:
        return None
    items = [case_value(item, kind) for item, (_, kind) in zip(row, serde.columns, strict=True)]
    return items[0] if serde.unwrapped else dict(zip([name for name, _ in serde.columns], items, strict=True))


def _kafka(value: Any, kind: SqlType) -> bytes:
    if kind == INTEGER:
        return struct.pack(">i", int(value))
    if kind == BIGINT:
        return _LONG.pack(int(value))
    if kind == DOUBLE:
        return struct.pack(">d", float(value))
    if kind == STRING:
        return (value if isinstance(value, str) else _dumps(value)).encode()
    return base64.b64decode(value)


def _dumps(value: Any) -> str:
    """Return JSON with decimals as they are written."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(str(k))}:{_dumps(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_dumps, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _row(value: Any, columns: Sequence[tuple[str, SqlType]], *, unwrapped: bool) -> tuple[Any, ...]:
    if unwrapped or not isinstance(value, dict):
        return (sql_value(value, columns[0][1]),) if columns else ()
    by_upper = {str(key).upper(): item for key, item in value.items()}
    return tuple(sql_value(value.get(name, by_upper.get(name.upper())), kind) for name, kind in columns)


def sql_value(value: Any, kind: SqlType) -> Any:
    """Return a value of a case as a value of a type.

    >>> sql_value({"a": 1}, StructType.of(A=DOUBLE))
    {'A': 1.0}
    """
    if value is None:
        return None
    match kind:
        case ArrayType(element):
            return [sql_value(item, element) for item in value]
        case MapType(key, item_kind):
            return {sql_value(k, key): sql_value(v, item_kind) for k, v in value.items()}
        case StructType(fields):
            by_upper = {str(key).upper(): item for key, item in value.items()}
            return {
                field.name: sql_value(value.get(field.name, by_upper.get(field.name.upper())), field.type)
                for field in fields
            }
        case DecimalType():
            return fit(Decimal(str(value)), kind)
    if kind in (INTEGER, BIGINT, TIMESTAMP):
        return int(value)
    if kind == DOUBLE:
        return float(value)
    if kind == STRING:
        return value if isinstance(value, str) else str(value)
    if kind == BYTES:
        return base64.b64decode(value)
    if kind == DATE:
        return date_of(int(value))
    if kind == TIME:
        return time_of(int(value))
    return value


def case_value(value: Any, kind: SqlType) -> Any:
    """Return a value of a type as cases have it: days and milliseconds as numbers, bytes as base64.

    >>> case_value([b"x"], ArrayType(BYTES))
    ['eA==']
    """
    if value is None:
        return None
    match kind:
        case ArrayType(element):
            return [case_value(item, element) for item in value]
        case MapType(_, inner):
            return {key: case_value(item, inner) for key, item in value.items()}
        case StructType(fields):
            return {field.name: case_value(value.get(field.name), field.type) for field in fields}
    if kind == BYTES:
        return base64.b64encode(value).decode()
    if kind == DATE:
        return days_of(value)
    return millis_of_day(value) if kind == TIME else value


@dataclass(frozen=True, slots=True)
class SqlCase:
    """One case.

    Attributes:
        area: The name of its file.
        name: Its name, with format and configuration if there are several.
        entry: The entry of the file, its formats and configurations put in.
    """

    area: str
    name: str
    entry: Mapping[str, Any]

    @property
    def script(self) -> str:
        """The statements as one text."""
        return "\n".join(self.entry["statements"])

    @property
    def refused(self) -> Mapping[str, Any] | None:
        """The error that is expected: of a statement of a script, or of a request."""
        return self.entry.get("expectedException") or self.entry.get("expectedError")


def load_cases(path: Path) -> Iterator[SqlCase]:
    """Yield the cases of a file, or of all files of a folder. Numbers with a point keep their text.

    Raises:
        SqlError: A file cannot be read, or is not a list of cases.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    for file in files:
        for number, entry in enumerate(_listed(file, "tests")):
            _check(entry, f"{file}, test {number + 1}")
            yield from _expanded(file.stem, entry)


def case_of_files(statements: Path, inputs: Path | None = None, outputs: Path | None = None) -> SqlCase:
    """Return the case of three files, as ksqlDB's test runner takes them.

    Raises:
        SqlError: A file cannot be read, or has no list of records.
    """
    entry: dict[str, Any] = {"name": statements.stem, "statements": [_text(statements)]}
    for key, file in (("inputs", inputs), ("outputs", outputs)):
        if file is not None:
            entry[key] = _listed(file, key)
    _check(entry, str(statements))
    return SqlCase(statements.stem, statements.stem, entry)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SqlError(f"{file} cannot be read: {error}") from error


def _listed(file: Path, key: str) -> list[Any]:
    try:
        document = json.loads(_text(file), parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise SqlError(f"{file} is not JSON: {error}") from error
    listed = document.get(key) if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise SqlError(f"{file} has no list '{key}'.", hint=f'It begins with {{"{key}": [')
    return listed


def _check(entry: Any, where: str) -> None:
    """Refuse an entry that is none, with its place."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise SqlError(f"{where} has no name.")
    texts = entry.get("statements")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise SqlError(f"{where} ({entry['name']}) has no list of statements.")
    for key in ("inputs", "outputs", "topics"):
        for item in entry.get(key) or ():
            if not isinstance(item, dict) or not isinstance(item.get("name" if key == "topics" else "topic"), str):
                raise SqlError(f"{where} ({entry['name']}): one of its {key} names no topic.")


def _expanded(area: str, entry: dict[str, Any]) -> Iterator[SqlCase]:
    for form in entry.get("format") or [None]:
        for config in entry.get("config") or [None]:
            expanded, name = dict(entry), entry["name"]
            if form is not None:
                name = f"{name} - {form}"
                expanded["statements"] = [text.replace("{FORMAT}", form) for text in entry["statements"]]
            if config is not None:
                name = f"{name} - {config}"
                properties = entry.get("properties", {})
                expanded["properties"] = {
                    key: config if value == "{CONFIG}" else value for key, value in properties.items()
                }
            yield SqlCase(area, name, expanded)
