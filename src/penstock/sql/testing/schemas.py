"""The schema registry of a case, and values through it: cases say which schemas the subjects of topics have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from penstock.serde.headers import bound
from penstock.serde.registry import Reference, StoredSchema
from penstock.sql.catalog import DataFormat, Source
from penstock.sql.compile.serdes import format_properties
from penstock.sql.formats import FormatProperties, RowSerde, format_info, inferred_columns, row_format
from penstock.sql.types import SqlType
from penstock.testing import EmbeddedRegistry

__all__ = ["CaseSchemas"]

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
