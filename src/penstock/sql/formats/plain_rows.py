"""KAFKA, a single primitive as Kafka's own serializers write it; NONE, no columns at all."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from penstock.sql.formats.interface import Columns, FormatInfo, FormatProperties, RowSerde
from penstock.sql.types import BIGINT, BYTES, DOUBLE, INTEGER, STRING, SqlType

__all__ = ["KafkaRows", "NoRows"]

INT, LONG, FLOAT = struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">d")
WRITERS: dict[SqlType, Callable[[Any], bytes]] = {
    INTEGER: INT.pack,
    BIGINT: LONG.pack,
    DOUBLE: FLOAT.pack,
    STRING: str.encode,
    BYTES: bytes,
}
READERS: dict[SqlType, Callable[[bytes], Any]] = {
    INTEGER: lambda data: INT.unpack(data)[0],
    BIGINT: lambda data: LONG.unpack(data)[0],
    DOUBLE: lambda data: FLOAT.unpack(data)[0],
    STRING: bytes.decode,
    BYTES: bytes,
}


class KafkaRows(RowSerde):
    """Rows of one column: integers and doubles big-endian, text as UTF-8, bytes as they are."""

    def __init__(self, info: FormatInfo, columns: Columns, properties: FormatProperties) -> None:
        super().__init__(info, columns, properties)
        self._prepare()

    def _prepare(self) -> None:
        kind = self.columns[0][1] if self.columns else STRING
        self._write, self._read = WRITERS[kind], READERS[kind]

    def serialize(self, value: Any) -> bytes | None:
        if not value or value[0] is None:
            return None
        try:
            return self._write(value[0])
        except (struct.error, TypeError, ValueError) as error:
            self.refuse(value, "rows of its columns", error)

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        if not self.columns:
            return ()
        try:
            return (self._read(data),)
        except (struct.error, ValueError) as error:
            self.reject(data, f"one {self.columns[0][1]} ({error})", error)

    def __getstate__(self) -> dict[str, Any]:
        return {"format": self.format, "columns": self.columns, "properties": self.properties}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()


class NoRows(RowSerde):
    """Rows of no columns: always null in the log, and an empty row, whatever stands there."""

    def serialize(self, value: Any) -> bytes | None:  # noqa: ARG002
        return None

    def deserialize(self, data: bytes | None) -> Any:  # noqa: ARG002
        return ()
