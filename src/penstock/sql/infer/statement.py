"""The CREATE statement of a sample."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from penstock.sql.infer.checking import read_whole
from penstock.sql.infer.recognise import Recognised, recognise
from penstock.sql.infer.sample import Sample
from penstock.sql.parse import format_statement, parse_statement
from penstock.sql.parse.format_expressions import quoted_string
from penstock.sql.parse.tokens import quoted

__all__ = ["Inferred", "infer_statement"]


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
    found = registry or {}
    key = recognise(sample.keys, sample.topic, "key", found)
    value = recognise(sample.values, sample.topic, "value", found)
    key, value = _apart(
        read_whole(key, sample.keys, sample.topic, "key", found),
        read_whole(value, sample.values, sample.topic, "value", found),
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
    """Whether columns may have any names: fields of objects and records are found by theirs."""
    return part.single or part.form in ("DELIMITED", "KAFKA", "NONE")


def _free(name: str, taken: set[str]) -> str:
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


def _properties(topic: str, key: Recognised, value: Recognised) -> dict[str, str]:
    found = {"KAFKA_TOPIC": quoted_string(topic)}
    if key.form not in ("NONE", "KAFKA"):
        found["KEY_FORMAT"] = quoted_string(key.form)
    found["VALUE_FORMAT"] = quoted_string(value.form)
    for part, word in ((key, "KEY"), (value, "VALUE")):
        found.update({f"{word}_{name}": quoted_string(text) for name, text in part.properties.items()})
    if value.single and value.form in ("JSON", "AVRO", "JSON_SR", "PROTOBUF"):
        found["WRAP_SINGLE_VALUE"] = "FALSE"
    return found
