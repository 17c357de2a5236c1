"""The names of serdes, by the Python type of their values, for type checkers."""

from __future__ import annotations

from typing import Literal

__all__ = ["BooleanName", "BytesName", "FloatName", "IntName", "StrName", "UuidName"]

StrName = Literal["string", "str"]
IntName = Literal["long", "integer", "int", "short", "text_long"]
FloatName = Literal["double", "float"]
BooleanName = Literal["boolean", "bool"]
BytesName = Literal["bytes", "bytearray", "byte_array"]
UuidName = Literal["uuid"]
