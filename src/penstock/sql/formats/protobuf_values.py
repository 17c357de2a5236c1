"""Values of SQL types in Protobuf messages, and back to what `foreign_reader` takes."""

from __future__ import annotations

from datetime import date, time
from decimal import Decimal
from typing import Any

from penstock.serde.formats.protobuf import WRAPPED

__all__ = ["fill_message", "message_values"]


def fill_message(message: Any, values: dict[str, Any]) -> None:
    """Set the fields of a message by their names, exactly or in upper case; nulls stay unset.

    Raises:
        TypeError: A value does not fit its field.
        ValueError: A value is out of its field's range.
    """
    fields = message.DESCRIPTOR.fields
    upper = {name.upper(): value for name, value in values.items()}
    for field in fields:
        value = values[field.name] if field.name in values else upper.get(field.name.upper())
        if value is not None:
            _set(message, field, value)


def _set(message: Any, field: Any, value: Any) -> None:
    held = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        for key, item in value.items():
            if inner.message_type is not None:
                _fill(held[key], inner.message_type.full_name, item)
            else:
                held[key] = _scalar(inner, item)
    elif field.is_repeated:
        # Connect's converter writes maps as messages of key and value that do not say to be a map
        items = [{"key": key, "value": each} for key, each in value.items()] if isinstance(value, dict) else value
        for item in items:
            if field.message_type is not None:
                _fill(held.add(), field.message_type.full_name, item)
            elif item is None:
                raise ValueError(f"a null within the array {field.name}, where Protobuf has none")
            else:
                held.append(_scalar(field, item))
    elif field.message_type is not None:
        held.SetInParent()
        _fill(held, field.message_type.full_name, value)
    else:
        setattr(message, field.name, _scalar(field, value))


def _scalar(field: Any, value: Any) -> Any:
    if value is None:
        return field.default_value
    if field.enum_type is not None and isinstance(value, str):
        return field.enum_type.values_by_name[value].number
    return value


def _fill(message: Any, name: str, value: Any) -> None:
    if value is None:
        return
    if name in WRAPPED:
        message.value = value
    elif isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        number = int(value.scaleb(-int(exponent)))
        message.value = number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)
        message.precision, message.scale = len(digits), -int(exponent)
    elif isinstance(value, date):
        message.year, message.month, message.day = value.year, value.month, value.day
    elif isinstance(value, time):
        message.hours, message.minutes, message.seconds = value.hour, value.minute, value.second
        message.nanos = value.microsecond * 1000
    elif name == "google.protobuf.Timestamp":
        message.FromMilliseconds(value)
    else:
        fill_message(message, value)


def message_values(message: Any, wanted: frozenset[str] | None = None) -> dict[str, Any]:
    """The values of a message's fields: null for those with presence that are not set, and for empty bytes.

    Args:
        message: The message.
        wanted: The names of fields in upper case; None takes all.
    """
    fields = message.DESCRIPTOR.fields
    return {field.name: _value(message, field) for field in fields if wanted is None or field.name.upper() in wanted}


def _value(message: Any, field: Any) -> Any:
    held = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {str(key): _item(inner, item) for key, item in held.items()}
    if field.is_repeated:
        return [_item(field, item) for item in held]
    if field.has_presence:
        return _item(field, held) if message.HasField(field.name) else None
    return None if held == b"" else _item(field, held)


def _item(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name in WRAPPED:
        return value.value
    if name == "confluent.type.Decimal":
        return Decimal(int.from_bytes(value.value, "big", signed=True)).scaleb(-value.scale)
    if name == "google.type.Date":
        return date(value.year, value.month, value.day)
    if name == "google.type.TimeOfDay":
        return time(value.hours, value.minutes, value.seconds, value.nanos // 1000)
    if name == "google.protobuf.Timestamp":
        return value.ToMilliseconds()
    return message_values(value)
