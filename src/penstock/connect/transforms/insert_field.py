"""InsertField: the record's metadata, or a fixed text, as fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from penstock.connect.config import ConfigDef, Kind
from penstock.connect.data import (
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    ConnectRecord,
    Int32,
    Moment,
    Schema,
    SettingError,
    Struct,
    Type,
    copy_basics,
)
from penstock.connect.transforms.transformation import (
    REPLACE_NULL,
    R,
    SidedTransformation,
    raw_structs,
    require_map,
    require_sink_record,
    require_struct,
    required,
    schema_cache,
    setting,
)

__all__ = ["InsertField"]

PURPOSE = "field insertion"
SUFFIX = (
    "Suffix with <code>!</code> to make this a required field, or <code>?</code> to keep it optional (the default)."
)
SCHEMAS = {"topic": STRING, "partition": INT32, "offset": INT64, "timestamp": TIMESTAMP, "static": STRING}
DOCS = {
    "topic": "Field name for Kafka topic. ",
    "partition": "Field name for Kafka partition. ",
    "offset": "Field name for Kafka offset - only applicable to sink connectors.<br/>",
    "timestamp": "Field name for record timestamp. ",
    "static": "Field name for static data field. ",
}


class InsertField(SidedTransformation):
    """Insert field(s) using attributes from the record metadata or a configured static value."""

    config: ClassVar[ConfigDef] = ConfigDef(
        [
            *(setting(f"{part}.field", Kind.STRING, doc + SUFFIX, default=None) for part, doc in DOCS.items()),
            setting("static.value", Kind.STRING, "Static field value, if field name configured.", default=None),
            REPLACE_NULL,
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        self._static = parsed["static.value"]
        self.replace_null = required(parsed, REPLACE_NULL.name)
        self._fields = {part: _name(parsed[f"{part}.field"]) for part in DOCS if parsed[f"{part}.field"] is not None}
        if not self._fields:
            raise SettingError("No field insertion configured")
        if "static" in self._fields and self._static is None:
            name = self._fields["static"][0]
            raise SettingError.invalid("static.value", None, f"No value specified for static field: {name}")
        self._schemas = schema_cache(self._extended)

    def apply(self, record: R) -> R:
        """Return the record with more fields."""
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None:
            return record
        if schema is None:
            fields = require_map(value, PURPOSE)
            inserted = self._found(record)
            if "partition" in inserted:
                inserted["partition"] = Int32(inserted["partition"])
            return self.updated(record, None, fields | {self._fields[part][0]: one for part, one in inserted.items()})
        before = require_struct(value, PURPOSE)
        changed = self._schemas(before.schema)
        after = Struct(changed, self.raw_or_default(before))
        for part, one in self._found(record).items():
            after[self._fields[part][0]] = Moment(one) if part == "timestamp" else one
        return self.updated(record, changed, after)

    def all_updated(self, schema: Schema | None, values: Sequence[Any]) -> tuple[Schema | None, list[Any]] | None:
        """Return all keys or values with a fixed text as a field."""
        if schema is None or schema.type is not Type.STRUCT or set(self._fields) != {"static"}:
            return None
        raw_values = raw_structs(schema, values, replace_null=self.replace_null)
        if raw_values is None:
            return None
        changed, static = self._schemas(schema), self._static
        return changed, [Struct.of_checked(changed, [*value, static]) for value in raw_values]

    def _found(self, record: ConnectRecord) -> dict[str, Any]:
        """Return what there is to insert, by part."""
        inserted: dict[str, Any] = {}
        if "topic" in self._fields:
            inserted["topic"] = record.topic
        if "partition" in self._fields and record.partition is not None:
            inserted["partition"] = record.partition
        if "offset" in self._fields:
            inserted["offset"] = require_sink_record(record, PURPOSE).offset
        if "timestamp" in self._fields and record.timestamp is not None:
            inserted["timestamp"] = record.timestamp
        if "static" in self._fields:
            inserted["static"] = self._static
        return inserted

    def _extended(self, schema: Schema) -> Schema:
        fields = [(part.name, part.schema) for part in schema.struct_fields()]
        fields += [(name, SCHEMAS[part].as_optional(optional)) for part, (name, optional) in self._fields.items()]
        return copy_basics(schema, Type.STRUCT, fields)


def _name(text: str) -> tuple[str, bool]:
    """Return the name of a field, and whether it is optional."""
    return (text[:-1], text.endswith("?")) if text.endswith(("?", "!")) else (text, True)
