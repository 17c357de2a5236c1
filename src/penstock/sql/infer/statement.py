"""The CREATE statement of a sample."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.base.json_depth import depth_of
from penstock.errors import PenstockError
from penstock.serde.headers import bound, configured
from penstock.sql.catalog import DataFormat
from penstock.sql.compile.serdes import format_serde
from penstock.sql.formats import format_info
from penstock.sql.infer.recognise import Recognised, recognise
from penstock.sql.infer.sample import Sample
from penstock.sql.parse import format_statement, parse_statement
from penstock.sql.parse.format_expressions import quoted_string
from penstock.sql.parse.tokens import quoted
from penstock.sql.types import BYTES, STRING, SqlType

__all__ = ["Inferred", "infer_statement", "read_whole"]

MOST_LEVELS = 200  # of JSON
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
    """Key and value with different names: what is found by its name keeps it, so the other one is renamed."""
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
    if depth_of(item) > MOST_LEVELS:
        return False
    document = json.loads(item.removeprefix(codecs.BOM_UTF8), parse_constant=float)
    if not isinstance(document, dict):
        return False
    upper = {name.upper(): value for name, value in document.items()}
    pairs = zip(part.columns, row, strict=True)
    return any(value is None and document.get(name, upper.get(name)) is not None for (name, _), value in pairs)
