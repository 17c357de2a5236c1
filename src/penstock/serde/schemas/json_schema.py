"""JSON values of a JSON Schema, with a schema registry and without."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from penstock.base.argument_checks import check_given
from penstock.errors import ConfigError, SerializationError
from penstock.serde.base import show
from penstock.serde.column import Column, cut, large_binary, series_of
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.json_serde import JsonSerde, decode_json
from penstock.serde.model_serde import ModelCodec
from penstock.serde.models import is_model
from penstock.serde.schemas.base import SchemaSerde
from penstock.serde.schemas.client import Registered, RegistryClient

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

__all__ = ["JsonSchemaSerde"]

_JSON = JsonSerde()
_SCALARS = {"string": pl.String, "integer": pl.Int64, "number": pl.Float64, "boolean": pl.Boolean}


class JsonSchemaSerde(SchemaSerde):
    """JSON text whose schema is registered; values are those of Python's json module.

    Values are checked against the schema if ``json.fail.invalid.schema`` is true (as in Java, it is not by default).

    Args:
        schema: JSON text, a dict, the path of a file, or a type such as a dataclass, whose values are then the serde's;
            None reads whatever comes.
        framing: See `SchemaSerde`.
        registry: See `SchemaSerde`.
    """

    def __init__(
        self,
        schema: Any = None,
        framing: str | None = None,
        registry: str | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(framing, registry)
        self._model: ModelCodec | None = None
        if is_model(schema):
            self._model = ModelCodec(schema)
            schema = {"$schema": "http://json-schema.org/draft-07/schema#", **self._model.schema()}
        self._text = None if schema is None else SchemaText(_schema_text(schema), "JSON")
        if self._text is None and framing == "none":
            raise ConfigError("JSON Schema without a registry needs a schema", hint="Use Serdes.json() for any JSON.")
        if self._text is not None:
            _validator(self._text)

    @property
    def name(self) -> str:
        if self._text is None:
            return "json_schema"
        shown = self.record_name or "object"
        if self.framing != "none":
            return f"json_schema<{shown}>"
        return f"json_schema<{shown}#{hashlib.blake2b(self._text.text.encode(), digest_size=4).hexdigest()}>"

    @property
    def schema_key(self) -> Any:
        return self._text, self._model

    @property
    def value_model(self) -> ModelCodec | None:
        """The type of the values, if the schema was made of one."""
        return self._model

    @property
    def record_name(self) -> str | None:
        document = None if self._text is None else json.loads(self._text.text)
        return document.get("title") if isinstance(document, dict) else None

    def to_register(self, client: RegistryClient) -> Schema | None:  # noqa: ARG002 - needs no references
        from confluent_kafka.schema_registry import Schema

        return None if self._text is None else Schema(self._text.text, "JSON")

    @property
    def _checks(self) -> bool:
        return self.settings.flag("json.fail.invalid.schema", default=False)

    def write(self, value: Any, registered: Registered | None) -> bytes:
        if self._checks:
            self._check(value if self._model is None else self._model.document(value), registered, "writes")
        data = self._model.write(value) if self._model is not None else _JSON.serialize(value)
        return b"null" if data is None else data

    def read(self, data: bytes, start: int, registered: Registered | None) -> Any:
        if registered is not None and registered.schema.kind != "JSON":
            raise SerializationError(
                f"the {self.name} serde reads JSON, and the schema of these bytes is {registered.schema.kind}",
                hint="Give the topic the serde it was written with.",
                serde=self.name,
            )
        if self._model is not None and not self._checks:
            return self._model.read(data, start)
        value = _JSON.deserialize(data[start:])
        if self._checks:
            self._check(value, registered, "reads")
        return value if self._model is None else self._model.read(data, start)

    def decode(self, data: pa.Array) -> Column:
        if self._model is None:
            return super().decode(data)
        if not len(data) and self._model.column_type is not None:
            return Column.of_series(pl.Series("", [], self._model.column_type))
        return Column.of_items(self.deserialize_rows(large_binary(data).to_pylist()))

    def _check(self, value: Any, registered: Registered | None, verb: str) -> None:
        schema = self._text or (None if registered is None else registered.schema)
        if schema is None:
            return
        try:
            error = next(iter(_validator(schema).iter_errors(value)), None)
        except Exception as failed:
            raise SerializationError(
                f"the {self.name} serde's schema cannot be applied to {show(value)}: {type(failed).__name__}: {failed}",
                hint="Register what the schema refers to ($ref), or set json.fail.invalid.schema to false.",
                serde=self.name,
            ) from failed
        if error is not None:
            raise SerializationError(
                f"the {self.name} serde {verb} values of its schema, not {show(value)}: {error.message}",
                hint="Correct the value or the schema, or set json.fail.invalid.schema to false.",
                serde=self.name,
            )

    def read_column(self, data: pa.Array, skip: int, registered: Registered | None) -> pl.Series | None:
        schema = self._text or (None if registered is None else registered.schema)
        kind = None if schema is None else _column_type(schema)
        if kind is None:
            return None
        if self._checks or (registered is not None and registered.schema.kind != "JSON"):
            for row in data.to_pylist():
                self.read(row, skip, registered)
        try:
            texts = series_of(cut(data, skip, 0).cast(pa.large_string()))
            return decode_json(texts, kind)
        except (pl.exceptions.PolarsError, pa.ArrowException) as error:
            raise SerializationError(f"a row is not a JSON object of the schema: {error}", serde=self.name) from error


@lru_cache(maxsize=256)
def _validator(schema: SchemaText) -> Any:
    """Return a validator of values, made once per process; references are found by their registered names."""
    try:
        from jsonschema import SchemaError
        from jsonschema.validators import validator_for
        from referencing import Registry, Resource
        from referencing.jsonschema import DRAFT7
    except ImportError as error:
        raise ConfigError(
            f"JSON Schema needs jsonschema: {error}", hint='Run: pip install "penstock[schemas]"'
        ) from error
    try:
        document = json.loads(schema.text)
        kind = validator_for(document)
        kind.check_schema(document)
        others = [
            (name, Resource.from_contents(json.loads(text), default_specification=DRAFT7))
            for name, text in schema.referred
        ]
    except (ValueError, SchemaError, AttributeError) as error:
        raise ConfigError(f"this is not a JSON Schema: {getattr(error, 'message', error)}") from error
    return kind(document, registry=Registry().with_resources(others))


@lru_cache(maxsize=256)
def _column_type(schema: SchemaText) -> pl.Struct | None:
    """Return the struct of an object's properties; None if some property has no type of its own."""
    document = json.loads(schema.text)
    column_type = _type(document) if isinstance(document, dict) else None
    return column_type if isinstance(column_type, pl.Struct) else None


def _type(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return None
    kinds = schema.get("type")
    if isinstance(kinds, list):
        kinds = next((kind for kind in kinds if kind != "null"), None) if len(set(kinds) - {"null"}) == 1 else None
    branches = schema.get("oneOf") or schema.get("anyOf")
    if kinds is None and branches:  # as generators write "or null"
        some = [branch for branch in branches if branch != {"type": "null"}]
        return _type(some[0]) if len(some) == 1 else None
    if kinds == "array":
        item = _type(schema.get("items"))
        return None if item is None else pl.List(item)
    if kinds == "object":
        inner = {name: _type(one) for name, one in schema.get("properties", {}).items()}
        return None if not inner or None in inner.values() else pl.Struct(inner)
    return _SCALARS.get(str(kinds))


def _schema_text(schema: str | Mapping[str, Any] | Path) -> str:
    if isinstance(schema, Path):
        try:
            return schema.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"the JSON Schema {schema} cannot be read: {error}") from error
    check_given(schema, (str, Mapping, bool), "schema", "a text, a dict or a path", error=ConfigError)
    return schema if isinstance(schema, str) else json.dumps(schema)
