"""The serde of a Python type: a dataclass, a model of pydantic, or what is made of them; JSON text."""

from __future__ import annotations

import json
from decimal import Decimal
from functools import cached_property
from typing import Any, NoReturn, is_typeddict

import pyarrow as pa

from penstock.base.json_depth import MOST_DEPTH, depth_of
from penstock.base.late_polars import pl
from penstock.errors import ConfigError, SerializationError
from penstock.serde.base import BaseSerde, show
from penstock.serde.column import Column
from penstock.serde.json_serde import dump_json
from penstock.serde.models import MisfitError, RecordNode, compiled, holds_decimals, model_name, unlike, uses_pydantic

__all__ = ["ModelCodec", "ModelSerde"]

_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_scan_exactly = json.JSONDecoder(parse_float=Decimal).scan_once  # type: ignore[attr-defined]
# pydantic's errors are ValueErrors
_UNWRITABLE = (TypeError, ValueError, ArithmeticError, RecursionError, AttributeError)


class ModelCodec:
    """The conversion between the values of a type and JSON text.

    Args:
        kind: The type.

    Raises:
        ConfigError: Some part of the type has no JSON form.
    """

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.name = model_name(kind)
        self.shape = compiled(kind)
        self.is_pydantic = uses_pydantic(kind)
        self._scan = _scan_exactly if holds_decimals(self.shape) else _scan
        if self.is_pydantic:
            _ = self._adapter  # a model that is not complete fails here

    def read(self, data: bytes, start: int = 0) -> Any:
        """Return the value of JSON text from a position on; JSON's null is None.

        Raises:
            SerializationError: The text is not JSON, or no value of the type. Facts: ``field``.
        """
        text = data[start:] if start else data
        if depth_of(text) > MOST_DEPTH:
            self._reject(text, f"JSON of at most {MOST_DEPTH} levels")
        if self.is_pydantic:
            return None if text.strip(b" \t\r\n") == b"null" else self._read_by_pydantic(text)
        try:
            decoded = text.decode()
            try:
                document, end = self._scan(decoded, 0)
            except StopIteration:
                end = -1
            if end != len(decoded):  # white space around it, or no JSON
                stripped = decoded.strip(" \t\r\n")
                document, end = self._scan(stripped, 0) if stripped else (None, 0)
                if end != len(stripped) or not stripped:
                    self._reject(text, "one JSON value")
        except StopIteration as error:
            self._reject(text, "JSON", error)
        except SerializationError:
            raise
        except (ValueError, ArithmeticError, RecursionError) as error:  # exponents can be too large for a Decimal
            self._reject(text, f"JSON ({error})", error)
        if document is None:
            return None
        try:
            return self.shape.read(document)
        except MisfitError as misfit:
            raise self._misread(str(misfit), misfit.path, text) from misfit

    def write(self, value: Any) -> bytes:
        """Return the JSON text of a value.

        Raises:
            SerializationError: It is not one of the type. Facts: ``field``.
        """
        try:
            if self.is_pydantic:
                written: bytes = self._adapter.dump_json(self._checked(value), by_alias=True, warnings="error")
                return written
            return dump_json(self.shape.write(value)).encode()
        except _UNWRITABLE as error:
            raise self._unwritten(value, error) from error

    def document(self, value: Any) -> Any:
        """Return a value as what its JSON text holds.

        Raises:
            SerializationError: It is not one of the type. Facts: ``field``.
        """
        try:
            if self.is_pydantic:
                return self._adapter.dump_python(self._checked(value), mode="json", by_alias=True, warnings="error")
            return self.shape.write(value)
        except _UNWRITABLE as error:
            raise self._unwritten(value, error) from error

    def _checked(self, value: Any) -> Any:
        """Return a value for pydantic to write; what an expression made becomes an object."""
        if isinstance(value, dict) and isinstance(self.shape, RecordNode):
            value = self._adapter.validate_python(value)
        if isinstance(self.kind, type) and not is_typeddict(self.kind) and not isinstance(value, self.kind):
            unlike(self.name, value)
        return value

    def _unwritten(self, value: Any, error: Exception) -> SerializationError:
        path = error.path if isinstance(error, MisfitError) else ""
        said = str(error) if isinstance(error, MisfitError) else f"cannot be written: {_first_line(error)}"
        return SerializationError(
            f"{show(value)} is no {self.name}: {said}",
            hint="Correct the function that returned it, or give its verb another serde.",
            serde=f"model<{self.name}>",
            field=path,
            wrong_type=not path,
        )

    @cached_property
    def column_type(self) -> Any:
        """The Polars type of the documents, for expressions; None if they have none."""
        return self.shape.column_type

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the type; objects have no other properties, so that schemas may gain some."""
        if not self.is_pydantic:
            return self.shape.schema()
        schema: dict[str, Any] = self._adapter.json_schema(by_alias=True)
        for part in [schema, *schema.get("$defs", {}).values()]:
            if "properties" in part:
                part.setdefault("additionalProperties", False)
        return schema

    def _read_by_pydantic(self, text: bytes) -> Any:
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
            said = f"field {path!r}: {first['msg']}" if path else str(first["msg"])
            raise self._misread(said, path, text) from error
        except RecursionError as error:
            self._reject(text, "JSON with fewer levels", error)
        except Exception as error:  # what a validator raises is the user's own check
            raise self._misread(f"{type(error).__name__}: {error}", "", text) from error

    def _misread(self, said: str, path: str, text: bytes) -> SerializationError:
        return SerializationError(
            f"these {len(text)} bytes are no {self.name}: {said}, in {show(text)}",
            hint="Give fields that may be missing a default, and those that may be null the type `... | None`; "
            "deserialization.exception.handler decides about records that stay bad.",
            serde=f"model<{self.name}>",
            field=path,
        )

    def _reject(self, text: bytes, expected: str, cause: BaseException | None = None) -> NoReturn:
        raise SerializationError(
            f"these {len(text)} bytes are no {self.name}, which is read from {expected}: {show(text)}",
            hint="Give the topic the serde it was written with, or set deserialization.exception.handler.",
            serde=f"model<{self.name}>",
        ) from cause

    @cached_property
    def _adapter(self) -> Any:
        try:
            from pydantic import PydanticUserError, TypeAdapter
        except ImportError as error:
            raise ConfigError(
                f"{self.name} is a model of pydantic, which cannot be imported here: {error}",
                hint='Run: pip install "penstock[pydantic]" (on all machines), or use a dataclass.',
            ) from error
        try:
            adapter: Any = TypeAdapter(self.kind)
            adapter.json_schema()
        except PydanticUserError as error:
            raise ConfigError(f"pydantic has no JSON form of {self.name}: {_first_line(error)}") from error
        return adapter

    def __getstate__(self) -> dict[str, Any]:
        return {name: fact for name, fact in vars(self).items() if name not in {"_adapter", "_scan", "column_type"}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._scan = _scan_exactly if holds_decimals(self.shape) else _scan

    def __eq__(self, other: object) -> bool:
        # `str | date` equals `date | str` in Python, but reads otherwise: the name has the order.
        return isinstance(other, ModelCodec) and self.name == other.name and self.kind == other.kind

    def __hash__(self) -> int:
        return hash(self.name)


class ModelSerde(BaseSerde):
    """Values of a type as JSON: what ``value_serde=Order`` stands for.

    Fields that the type lacks are left out, those that a record lacks get their defaults. JSON's null is None.
    """

    def __init__(self, kind: Any) -> None:
        self.model = ModelCodec(kind)

    @property
    def name(self) -> str:
        return f"model<{self.model.name}>"

    @property
    def value_model(self) -> ModelCodec:
        """The type of the values."""
        return self.model

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The names of the fields that expressions can read; None if the type has none."""
        kind = self.model.column_type
        return tuple(field.name for field in kind.fields) if isinstance(kind, pl.Struct) else None

    def serialize(self, value: Any) -> bytes | None:
        return None if value is None else self.model.write(value)

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else self.model.read(data)

    def decode(self, data: pa.Array) -> Column:
        if not len(data) and self.model.column_type is not None:  # tells which fields expressions have
            return Column.of_series(pl.Series("", [], self.model.column_type))
        return super().decode(data)

    def encode(self, column: Column) -> pa.Array:
        if column.is_columnar and not len(column):
            return pa.array([], pa.large_binary())
        return super().encode(column)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelSerde) and self.model == other.model

    def __hash__(self) -> int:
        return hash((type(self), self.name))


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
