"""JSON: an object of all columns, or the single column as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.json_depth import depth_of
from penstock.serde.json_serde import MOST_DEPTH
from penstock.sql.formats.interface import Columns, FormatInfo, FormatProperties, RowSerde
from penstock.sql.formats.json_text import json_writer, object_writer
from penstock.sql.formats.json_values import json_reader, parse_json, pick
from penstock.sql.types import SqlValueError

__all__ = ["JsonRows"]


def _only(write: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda row: write(row[0])


class JsonRows(RowSerde):
    """Rows as JSON; fields are found by their exact name, else by their name in upper case."""

    def __init__(self, info: FormatInfo, columns: Columns, properties: FormatProperties) -> None:
        super().__init__(info, columns, properties)
        self._prepare()

    def _prepare(self) -> None:
        self._names = tuple(name for name, _ in self.columns)
        self._readers = [json_reader(kind) for _, kind in self.columns]
        if self.unwrapped:
            single = json_writer(self.columns[0][1])
            self._write = _only(single)
        else:
            self._write = object_writer(list(self.columns))

    def serialize(self, value: Any) -> bytes | None:
        if value is None or (self.unwrapped and value[0] is None):
            return None
        try:
            return self._write(value).encode()
        except (TypeError, ValueError, AttributeError) as error:
            self.refuse(value, "rows of its columns", error)

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        if depth_of(data) > MOST_DEPTH:
            self.reject(data, f"JSON of at most {MOST_DEPTH} levels")
        try:
            found = parse_json(data.decode())
            if found is None:
                return None
            if self.unwrapped:
                return (self._readers[0](found),)
            if type(found) is not dict:
                raise SqlValueError(f"{type(found).__name__} in place of an object")
            values = pick(found, self._names)
            return tuple([read(value) for read, value in zip(self._readers, values, strict=True)])
        except (ValueError, ArithmeticError, RecursionError) as error:
            self.reject(data, f"JSON of its columns ({error})", error)

    def __getstate__(self) -> dict[str, Any]:
        return {"format": self.format, "columns": self.columns, "properties": self.properties}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()
