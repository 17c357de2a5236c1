"""CREATE statements from a sample of a topic: formats are recognised, the types of all records merged, keys found."""

from __future__ import annotations

import codecs
import csv
import json
import re
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from penstock.base.json_depth import depth_of
from penstock.errors import PenstockError, SqlError
from penstock.log.base import TopicLog
from penstock.serde.bound_serdes import bound, configured
from penstock.sql.catalog import RESERVED_COLUMNS, DataFormat
from penstock.sql.compile.serdes import format_serde
from penstock.sql.formats import FormatProperties, format_info, inferred_columns
from penstock.sql.parse import format_statement, parse_statement
from penstock.sql.parse.formatting import quoted_string
from penstock.sql.parse.tokens import quoted
from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    ArrayType,
    MapType,
    SqlType,
    StructType,
)
from penstock.sql.types.sql_type import with_inner_types

__all__ = ["Inferred", "Sample", "infer_statement", "read_sample"]


# The sample


@dataclass(frozen=True, slots=True)
class Sample:
    """Keys and values of records.

    Attributes:
        partitions: The number of the topic's partitions.
    """

    topic: str
    partitions: int
    keys: tuple[bytes | None, ...]
    values: tuple[bytes | None, ...]


def read_sample(log: TopicLog, topic: str, records: int = 1000) -> Sample:
    """Read the newest records of a topic.

    Args:
        log: The log.
        topic: The topic.
        records: How many records at most, over all partitions.

    Raises:
        UnknownTopicError: There is no such topic.
        SqlError: It has no records.
    """
    partitions = log.topic(topic).partitions
    each = max(1, records // partitions)
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    for partition in range(partitions):
        end = log.end_offset(topic, partition)
        begin = max(log.beginning_offset(topic, partition), end - each)
        for batch in log.iterate(topic, partition, begin, end):
            keys += batch.column("key").to_pylist()
            values += batch.column("value").to_pylist()
    if not values:
        raise SqlError(f"Topic '{topic}' has no records to look at.", hint="Write some, or name another topic.")
    return Sample(topic, partitions, tuple(keys), tuple(values))


# Formats

FRAME = 5  # bytes before a value with a schema: a zero and the number of the schema
DELIMITERS = (",", "\t", ";", "|")
BOM = "\ufeff"  # some programs begin a text with it
MAX_LEVELS = 200  # of JSON
SIZES = {4: INTEGER, 8: BIGINT}
WHOLE = re.compile("-?(?:0|[1-9][0-9]{0,18})")
WHOLE_NUMBER = re.compile("-?(?:0|[1-9][0-9]{0,300})")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
KINDS = {"AVRO": "AVRO", "JSON": "JSON_SR", "PROTOBUF": "PROTOBUF"}
Columns = tuple[tuple[str, SqlType], ...]
MAX_DEPTH = 20  # deeper values are texts
MAX_FIELDS = 100  # objects with more names are maps
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # texts do not have them
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
EXACT = 1 << 53  # a double has all whole numbers up to here
LIKELY = (1e-6, 1e15)  # sizes of doubles; those of small whole numbers, read as doubles, are far below


@dataclass(frozen=True, slots=True)
class Recognised:
    """A format with its columns.

    Attributes:
        single: Whether the one column is the whole key or value, not a field of it.
        properties: Further properties of WITH, without KEY_ or VALUE_.
        notes: What the sample left open, as sentences.
    """

    form: str
    columns: Columns = ()
    single: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def recognise(items: Sequence[bytes | None], topic: str, part: str, registry: Mapping[str, str]) -> Recognised:
    """Return the format of keys or values.

    Args:
        items: Their bytes; nulls are left out.
        topic: The topic.
        part: ``key`` or ``value``.
        registry: The settings of a schema registry; without them nothing is looked up there.

    Raises:
        SqlError: Values have a schema, and the registry does not have it.
    """
    present = [item for item in items if item is not None]
    if not present:
        return Recognised("NONE")
    framed = _framed(present)
    if framed is not None:
        return _registered(framed, topic, part, registry)
    texts = _texts(present)
    if texts is None:
        return _binary(present, part)
    recognised = _json(texts, part)
    if recognised is None and part == "value":
        recognised = _delimited(texts)
    if recognised is not None:
        return recognised
    return Recognised("KAFKA", ((_single(part), STRING),), single=True)


def _single(part: str) -> str:
    return "ID" if part == "key" else "VALUE"


def _texts(items: Sequence[bytes]) -> list[str] | None:
    try:
        texts = [item.decode() for item in items]
    except UnicodeDecodeError:
        return None
    return None if any(CONTROL.search(text) for text in texts) else texts


def _binary(items: Sequence[bytes], part: str) -> Recognised:
    sizes = {len(item) for item in items}
    kind = SIZES.get(sizes.pop(), BYTES) if len(sizes) == 1 else BYTES
    notes: tuple[str, ...] = ()
    if kind == BIGINT:
        kind, other = (DOUBLE, BIGINT) if _are_doubles(items) else (BIGINT, DOUBLE)
        notes = (f"8 bytes may also be a {other}: look at the {part}s.",)
    return Recognised("KAFKA", ((_single(part), kind),), single=True, notes=notes)


def _are_doubles(items: Sequence[bytes]) -> bool:
    numbers = [struct.unpack(">d", item)[0] for item in items]
    return any(numbers) and all(number == 0 or LIKELY[0] <= abs(number) <= LIKELY[1] for number in numbers)


def _framed(items: Sequence[bytes]) -> int | None:
    """Return the number of the newest schema, where all items begin with one."""
    if not all(len(item) > FRAME and item[0] == 0 for item in items):
        return None
    numbers = Counter(int.from_bytes(item[1:FRAME], "big") for item in items)
    plausible = len(numbers) <= max(1, len(items) // 2) or len(items) == 1
    binary = {len(item) for item in items} == {8}  # small whole numbers begin with zeros too
    return max(numbers) if plausible and not binary else None


def _registered(number: int, topic: str, part: str, registry: Mapping[str, str]) -> Recognised:
    from penstock.serde.schemas.client import client_for
    from penstock.serde.schemas.schema_settings import SchemaSettings

    if "schema.registry.url" not in registry:
        raise SqlError(
            f"The {part}s of topic '{topic}' have the schema {number} of a registry.",
            hint="Give its address: -c schema.registry.url=http://...",
        )
    form = KINDS[client_for(SchemaSettings.of(dict(registry))).schema(number).schema.kind]
    wrapped = part == "value"
    properties = FormatProperties(part=part, wrapped=wrapped, schema_id=number, registry=dict(registry))
    inferred = inferred_columns(form, topic, properties)
    if not inferred:
        raise SqlError(f"The schema {number} of topic '{topic}' has no columns.")
    columns = tuple((name.upper() if name.isidentifier() else name, kind) for name, kind in inferred)
    return Recognised(form, columns, single=columns[0][0] in ("ROWKEY", "ROWVAL") and len(columns) == 1)


def _json(texts: Sequence[str], part: str) -> Recognised | None:
    try:
        values = [value for value in map(_parsed, texts) if value is not None]
    except (ValueError, RecursionError, PenstockError):
        return None
    if all(isinstance(value, dict) for value in values) and any(values):
        fields: dict[str, SqlType] = {}
        for name, item in (pair for value in values for pair in value.items()):
            fields[name] = merged(fields.get(name, NULL), type_of(item))
        names = [name for name in fields if name]
        columns, notes = _columns(StructType.of([(name, fields[name]) for name in names]))
        if len(names) < len(fields):
            notes += ("The field with an empty name is left out: no column can have it.",)
        rounded = [name for name in names if _rounds([value.get(name) for value in values], fields[name])]
        if rounded:
            notes += (_rounding(", ".join(rounded)),)
        if not columns:
            return None
        if part == "key" and len(columns) == 1:  # a single column of a key is the whole key
            return Recognised("JSON", ((_single(part), StructType.of(columns)),), single=True, notes=notes)
        return Recognised("JSON", columns, notes=notes)
    kind: SqlType = NULL
    for value in values:
        kind = merged(kind, type_of(value))
    if part == "key" and kind in (BIGINT, DOUBLE):
        return None  # a text of digits
    if kind == NULL or not any(text[:1] in '"[{' for text in texts):
        return None if part == "value" and _delimited(texts) else _scalar(kind, part)
    return Recognised("JSON", ((_single(part), known(kind)),), single=True)


def _scalar(kind: SqlType, part: str) -> Recognised | None:
    return None if kind == NULL else Recognised("JSON", ((_single(part), known(kind)),), single=True)


def _parsed(text: str) -> Any:
    if depth_of(text.encode()) > MAX_LEVELS:
        raise ValueError("too deep")
    return json.loads(text.removeprefix(BOM), parse_constant=float)


def _rounds(values: Sequence[Any], kind: SqlType) -> bool:
    """Return whether a column of doubles would change whole numbers among the values."""
    return kind == DOUBLE and any(type(value) is int and abs(value) > EXACT for value in values)


def _rounding(names: str) -> str:
    return f"{names}: DOUBLE rounds whole numbers of so many digits. DECIMAL(38, 0) or STRING keeps them."


def _columns(kind: StructType) -> tuple[Columns, tuple[str, ...]]:
    """Return names in upper case, which find fields; names that differ in case alone, and reserved ones, are kept."""
    counts = Counter(each.name.upper() for each in kind.fields)
    columns = []
    notes = []
    for each in kind.fields:
        name = each.name.upper()
        if counts[name] > 1 or name in RESERVED_COLUMNS:
            name = each.name
        if name in RESERVED_COLUMNS:
            notes.append(f"The field {name} is left out: the name is that of a pseudo column.")
            continue
        if each.type == NULL:
            notes.append(f"{name} is null in all records: its type is a guess.")
        columns.append((name, known(_upper(each.type))))
    return tuple(columns), tuple(notes)


def _upper(kind: SqlType) -> SqlType:
    if isinstance(kind, StructType) and len({each.name.upper() for each in kind.fields}) == len(kind.fields):
        return StructType.of([(each.name.upper(), _upper(each.type)) for each in kind.fields])
    return kind


def _delimited(texts: Sequence[str]) -> Recognised | None:
    """Return the columns by the delimiter that makes most of them: a comma may also stand in numbers and texts."""
    best: tuple[str, list[list[str]]] | None = None
    for delimiter in DELIMITERS:
        try:
            rows = [row for text in texts for row in csv.reader([text], delimiter=delimiter, strict=True)]
        except csv.Error:
            continue
        is_table = len(rows) == len(texts) and len({len(row) for row in rows}) == 1
        if is_table and len(rows[0]) > (1 if best is None else len(best[1][0])):
            best = delimiter, rows
    if best is None:
        return None
    delimiter, rows = best
    fields = [[row[at] for row in rows] for at in range(len(rows[0]))]
    kinds = [_field_type(column) for column in fields]
    columns = tuple((f"COLUMN_{at + 1}", kind) for at, kind in enumerate(kinds))
    notes = ["DELIMITED has no names: give the columns theirs."]
    others = [_field_type(column[1:]) for column in fields]
    if any(text.startswith(BOM) for text in texts):
        notes.append("A record begins with a byte order mark, which stays in its first column.")
    elif len(rows) > 1 and any(kind == STRING != other for kind, other in zip(kinds, others, strict=True)):
        shown = delimiter.join(rows[0])[:100]
        notes.append(f"The first record, {shown!r}, may be a line of names: all others have numbers there.")
    rounded = [
        name
        for (name, kind), column in zip(columns, fields, strict=True)
        if kind == DOUBLE and any(WHOLE_NUMBER.fullmatch(text) and abs(int(text)) > EXACT for text in column)
    ]
    if rounded:
        notes.append(_rounding(", ".join(rounded)))
    properties = {} if delimiter == "," else {"DELIMITER": delimiter}
    return Recognised("DELIMITED", columns, properties=properties, notes=tuple(notes))


# Types


def _field_type(texts: Sequence[str]) -> SqlType:
    """Return the type of the fields of a column; digits behind a zero are not a number, as the zero says something."""
    present = [text for text in texts if text]
    if not present or not all(NUMBER.fullmatch(text) for text in present):
        return STRING
    is_whole = all(WHOLE.fullmatch(text) and LONG_MIN <= int(text) <= LONG_MAX for text in present)
    return BIGINT if is_whole else DOUBLE


def type_of(value: Any, depth: int = 0) -> SqlType:
    """Return the type of a JSON value; that of null is open.

    >>> str(type_of({"id": 1, "tags": ["a", None]}))
    'STRUCT<`id` BIGINT, `tags` ARRAY<STRING>>'
    """
    if depth > MAX_DEPTH:
        return STRING
    match value:
        case None:
            return NULL
        case bool():
            return BOOLEAN
        case int():
            return BIGINT if LONG_MIN <= value <= LONG_MAX else DOUBLE
        case float():
            return DOUBLE
        case list():
            element_type: SqlType = NULL
            for item in value:
                element_type = merged(element_type, type_of(item, depth + 1))
            return ArrayType(element_type)
        case dict():
            fields = [(name, type_of(item, depth + 1)) for name, item in value.items()]
            return _object(fields)
    return STRING


def _object(fields: list[tuple[str, SqlType]]) -> SqlType:
    """Return a struct; a map where the names are not names or too many."""
    if fields and len(fields) <= MAX_FIELDS and all(NAME.fullmatch(name) for name, _ in fields):
        return StructType.of(fields)
    value_type: SqlType = NULL
    for _, kind in fields:
        value_type = merged(value_type, kind)
    return MapType(STRING, value_type)


def merged(one: SqlType, two: SqlType) -> SqlType:
    """Return the type that takes the values of both; STRING where nothing else does.

    >>> str(merged(BIGINT, DOUBLE)), str(merged(BIGINT, BOOLEAN)), str(merged(NULL, BIGINT))
    ('DOUBLE', 'STRING', 'BIGINT')
    """
    if two in (one, NULL):
        return one
    if one == NULL:
        return two
    match one, two:
        case ArrayType(left), ArrayType(right):
            return ArrayType(merged(left, right))
        case MapType(_, left), MapType(_, right):
            return MapType(STRING, merged(left, right))
        case (MapType(_, kind), StructType(fields)) | (StructType(fields), MapType(_, kind)):
            if kind == NULL:  # an empty object says nothing about names
                return StructType(fields)
            for field in fields:
                kind = merged(kind, field.type)
            return MapType(STRING, kind)
        case StructType(left_fields), StructType(right_fields):
            kinds = {field.name: field.type for field in left_fields}
            for field in right_fields:
                kinds[field.name] = merged(kinds.get(field.name, NULL), field.type)
            return _object(list(kinds.items()))
    return DOUBLE if {one, two} == {BIGINT, DOUBLE} else STRING


def known(kind: SqlType) -> SqlType:
    """Return the type with STRING for all that the sample leaves open.

    >>> str(known(ArrayType(NULL)))
    'ARRAY<STRING>'
    """
    return STRING if kind == NULL else with_inner_types(kind, known)


# Statements

NAMED = {"\t": "TAB"}  # delimiters that statements write as words


@dataclass(frozen=True, slots=True)
class Inferred:
    """A statement, and what the sample left open.

    Attributes:
        text: The statement with its semicolon.
        notes: Sentences for the user.
    """

    text: str
    notes: tuple[str, ...]


def infer_statement(
    sample: Sample,
    kind: Literal["STREAM", "TABLE"] = "STREAM",
    name: str = "",
    registry: Mapping[str, str] | None = None,
) -> Inferred:
    """Make the CREATE statement for the topic of a sample.

    Args:
        sample: Its records.
        kind: What to create.
        name: The name; by default that of the topic.
        registry: The settings of a schema registry.

    Raises:
        SqlError: Records have a schema that cannot be looked up.

    >>> sample = Sample("clicks", 1, (b"ann",), (b'{"url": "/", "ms": 12}',))
    >>> print(infer_statement(sample).text)
    CREATE STREAM CLICKS (ID STRING KEY, URL STRING, MS BIGINT) WITH (KAFKA_TOPIC = 'clicks', VALUE_FORMAT = 'JSON');
    """
    registry_settings = registry or {}
    key = recognise(sample.keys, sample.topic, "key", registry_settings)
    value = recognise(sample.values, sample.topic, "value", registry_settings)
    key, value = _apart(
        read_whole(key, sample.keys, sample.topic, "key", registry_settings),
        read_whole(value, sample.values, sample.topic, "value", registry_settings),
    )
    role = "PRIMARY KEY" if kind == "TABLE" else "KEY"
    columns = []
    for part, suffix in ((key, f" {role}"), (value, "")):
        columns += [f"{quoted(column)} {sql_type}{suffix}" for column, sql_type in part.columns]
    properties = _properties(sample.topic, key, value)
    stream = name or re.sub(r"\W", "_", sample.topic).upper()
    written = ", ".join(f"{item}={text}" for item, text in properties.items())
    text = f"CREATE {kind} {quoted(stream)} ({', '.join(columns)}) WITH ({written})"
    notes = [*key.notes, *value.notes]
    if kind == "TABLE" and not key.columns:
        notes.append("The records have no key, which a table needs: make it a stream.")
    if kind == "TABLE" and not key.columns:
        return Inferred(f"-- {text};", tuple(notes))
    return Inferred(f"{format_statement(parse_statement(text))};", tuple(notes))


def _apart(key: Recognised, value: Recognised) -> tuple[Recognised, Recognised]:
    """Return key and value with different names: what is found by its name keeps it, so the other one is renamed."""
    taken = {name for name, _ in value.columns}
    same = [name for name, _ in key.columns if name in taken]
    if not same:
        return key, value
    if _is_free(key):
        columns = tuple((_free(f"{name}_KEY", taken) if name in same else name, kind) for name, kind in key.columns)
        return replace(key, columns=columns), value
    taken = {name for name, _ in key.columns}
    if _is_free(value):
        columns = tuple((_free(name, taken) if name in same else name, kind) for name, kind in value.columns)
        return key, replace(value, columns=columns)
    left = tuple((name, kind) for name, kind in value.columns if name not in same)
    note = f"{', '.join(same)} of the value is left out: the key has fields of the same name, by which they are found."
    return key, replace(value, columns=left, notes=(*value.notes, note))


def _is_free(part: Recognised) -> bool:
    """Return whether columns may have any names: fields of objects and records are found by theirs."""
    return part.single or part.form in ("DELIMITED", "KAFKA", "NONE")


def _free(name: str, taken: set[str]) -> str:
    free_name, number = name, 1
    while free_name in taken:
        number += 1
        free_name = f"{name}_{number}"
    taken.add(free_name)
    return free_name


def _properties(topic: str, key: Recognised, value: Recognised) -> dict[str, str]:
    properties = {"KAFKA_TOPIC": quoted_string(topic)}
    if key.form not in ("NONE", "KAFKA"):
        properties["KEY_FORMAT"] = quoted_string(key.form)
    properties["VALUE_FORMAT"] = quoted_string(value.form)
    for part, word in ((key, "KEY"), (value, "VALUE")):
        properties.update(
            {f"{word}_{name}": quoted_string(NAMED.get(text, text)) for name, text in part.properties.items()}
        )
    if value.single and value.form in ("JSON", "AVRO", "JSON_SR", "PROTOBUF"):
        properties["WRAP_SINGLE_VALUE"] = "FALSE"
    return properties


def read_whole(
    part: Recognised, items: Sequence[bytes | None], topic: str, side: str, registry: Mapping[str, str]
) -> Recognised:
    """Return the columns of keys or values, wide enough for all of them.

    Args:
        part: What the sample says.
        items: Keys or values; nulls are left out.
        topic: The topic.
        side: ``key`` or ``value``.
        registry: The settings of a schema registry.
    """
    present = [item for item in items if item is not None]
    if not present or not part.columns:
        return part
    check = _Check(present, topic, side, registry)
    unread = check.unread(part)
    while unread:
        wider = check.wider(part, len(unread))
        if wider is None:
            return check.whole(part)
        part, unread = wider, check.unread(wider)
    return part


class _Check:
    """A reader of a sample with one choice of columns after the other."""

    def __init__(self, items: Sequence[bytes], topic: str, side: str, registry: Mapping[str, str]) -> None:
        self._items = items
        self._topic, self._side, self._registry = topic, side, dict(registry)

    def unread(self, part: Recognised) -> list[bytes]:
        """Return the items that the columns cannot read, or read with nulls in the place of values."""
        try:
            form = DataFormat(part.form, tuple(part.properties.items()), False if part.single else None)
            serde = configured(format_serde(form, part.columns, self._side), self._registry)
            serde = bound(serde, self._topic, self._side)
        except (PenstockError, ValueError):
            return list(self._items)
        return [item for item in self._items if not _reads(serde, item, part)]

    def wider(self, part: Recognised, unread: int) -> Recognised | None:
        """Return the columns with a text in the place of one that spoils records, or of all.

        None if all are texts already.
        """
        narrow = [index for index, (_, kind) in enumerate(part.columns) if kind != STRING]
        if not narrow or format_info(part.form).infers or part.form == "KAFKA":
            return None
        for index in narrow:
            tried = _with_texts(part, [index])
            if len(self.unread(tried)) < unread:
                return tried
        return _with_texts(part, narrow)

    def whole(self, part: Recognised) -> Recognised:
        """Return one column for the whole key or value: a text, or bytes."""
        name = "ID" if self._side == "key" else "VALUE"
        note = f"Not all {self._side}s can be read as {part.form}: they are one column."
        kinds: tuple[SqlType, ...] = (STRING, BYTES)
        for kind in kinds:
            recognised = Recognised("KAFKA", ((name, kind),), single=True, notes=(note,))
            if not self.unread(recognised):
                return recognised
        return replace(part, notes=(*part.notes, f"Not all {self._side}s of the sample can be read."))


def _with_texts(part: Recognised, places: Sequence[int]) -> Recognised:
    columns = tuple((name, STRING if at in places else kind) for at, (name, kind) in enumerate(part.columns))
    names = ", ".join(part.columns[at][0] for at in places)
    note = f"{names} is a text: not all records have {part.columns[places[0]][1]} there."
    return replace(part, columns=columns, notes=(*part.notes, note))


def _reads(serde: Any, item: bytes, part: Recognised) -> bool:
    try:
        row = serde.deserialize(item)
    except Exception:  # noqa: BLE001 - whatever it is, the record would be dropped
        return False
    if row is None or part.form != "JSON" or part.single:
        return row is not None or part.form == "JSON"
    return not _lost(item, part, row)


def _lost(item: bytes, part: Recognised, row: Sequence[Any]) -> bool:
    """Return whether a field that has a value is null in the row."""
    if depth_of(item) > MAX_LEVELS:
        return False
    document = json.loads(item.removeprefix(codecs.BOM_UTF8), parse_constant=float)
    if not isinstance(document, dict):
        return False
    upper = {name.upper(): value for name, value in document.items()}
    pairs = zip(part.columns, row, strict=True)
    return any(value is None and document.get(name, upper.get(name)) is not None for (name, _), value in pairs)
