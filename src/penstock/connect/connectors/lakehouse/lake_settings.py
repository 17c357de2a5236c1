"""The settings that sinks to lakehouse tables share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.connect.config import Importance, Kind, NamedValues, OneOf, Range, Setting

__all__ = ["SINK_SETTINGS", "contradictions"]

SINK_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="auto.create",
        kind=Kind.BOOLEAN,
        default=True,
        doc="Whether a table that is missing is made, with columns that may be null, by the schema of the records.",
    ),
    Setting(
        name="auto.evolve",
        kind=Kind.BOOLEAN,
        default=True,
        doc="Whether fields that a table does not have become new columns; false: such records are errors.",
    ),
    Setting(
        name="table.properties",
        kind=Kind.LIST,
        default="",
        rule=NamedValues(),
        doc="Properties of a table that is made, as name:value, such as delta.enableChangeDataFeed:true.",
    ),
    Setting(
        name="insert.mode",
        kind=Kind.STRING,
        default="insert",
        rule=OneOf(("insert", "upsert")),
        importance=Importance.HIGH,
        doc="insert: each record is appended as a row; upsert: a record replaces the row that has its key.",
    ),
    Setting(
        name="pk.mode",
        kind=Kind.STRING,
        default="record_key",
        rule=OneOf(("record_key", "record_value")),
        doc="For upserts: whether the columns of the key come from the records' keys or are fields of their values.",
    ),
    Setting(
        name="pk.fields",
        kind=Kind.LIST,
        default="",
        doc="For upserts: the columns of the key; empty: all fields of the records' keys. The one column of a key that "
        "has no fields.",
    ),
    Setting(
        name="behavior.on.null.values",
        kind=Kind.STRING,
        default="delete",
        rule=OneOf(("delete", "ignore", "fail")),
        doc="What happens to records without value. delete: an upserted row of their key is deleted; where rows are "
        "appended, nothing.",
    ),
    Setting(
        name="flush.size",
        kind=Kind.INT,
        default=50_000,
        rule=Range(1),
        importance=Importance.HIGH,
        doc="The number of records after which a task commits to its tables. It keeps so many in memory.",
    ),
    Setting(
        name="flush.interval.ms",
        kind=Kind.LONG,
        default=10_000,
        rule=Range(0),
        importance=Importance.HIGH,
        doc="The time after which a task commits what it has: how old a record is, at most, when its row can be read. "
        "Each commit makes at least one file.",
    ),
)


def contradictions(parsed: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Return settings of a sink that do not go together."""
    if parsed["insert.mode"] == "upsert" and parsed["pk.mode"] == "record_value" and not parsed["pk.fields"]:
        yield "pk.fields", "must name the fields of the key with pk.mode=record_value"
    if parsed["insert.mode"] == "insert" and parsed["pk.fields"]:
        yield "pk.fields", "is for insert.mode=upsert"
