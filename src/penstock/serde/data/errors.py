"""The errors of Connect's data, under Kafka's class names."""

from __future__ import annotations

from typing import ClassVar

from penstock.errors import ConnectError, SerializationError

__all__ = ["BytesError", "DataError", "SchemaBuilderError"]

_ERRORS = "org.apache.kafka.connect.errors"


class DataError(ConnectError):
    """A value that does not fit: its schema, a transformation or a converter. Kafka's ``DataException``."""

    java_class: ClassVar[str] = f"{_ERRORS}.DataException"


class SchemaBuilderError(DataError):
    """A schema that cannot be built: a field twice, a default of another type. Kafka's ``SchemaBuilderException``."""

    java_class: ClassVar[str] = f"{_ERRORS}.SchemaBuilderException"


class BytesError(SerializationError):
    """Bytes that do not decode. Kafka's ``SerializationException``."""

    java_class: ClassVar[str] = "org.apache.kafka.common.errors.SerializationException"
