"""Type variables that are Any by default: the types of serdes given by name, or not given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["KeyOrAny", "ValueOrAny"]

if TYPE_CHECKING:
    import typing_extensions

    KeyOrAny = typing_extensions.TypeVar("KeyOrAny", default=Any)
    ValueOrAny = typing_extensions.TypeVar("ValueOrAny", default=Any)
else:
    KeyOrAny = TypeVar("KeyOrAny")
    ValueOrAny = TypeVar("ValueOrAny")
