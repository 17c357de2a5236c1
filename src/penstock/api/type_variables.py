"""Type variables that are Any by default: the types of what is not given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["KeyOrAny", "OutKeyOrAny", "OutValueOrAny", "ValueOrAny"]

if TYPE_CHECKING:
    import typing_extensions

    KeyOrAny = typing_extensions.TypeVar("KeyOrAny", default=Any)
    ValueOrAny = typing_extensions.TypeVar("ValueOrAny", default=Any)
    OutKeyOrAny = typing_extensions.TypeVar("OutKeyOrAny", default=Any)
    OutValueOrAny = typing_extensions.TypeVar("OutValueOrAny", default=Any)
else:
    KeyOrAny = TypeVar("KeyOrAny")
    ValueOrAny = TypeVar("ValueOrAny")
    OutKeyOrAny = TypeVar("OutKeyOrAny")
    OutValueOrAny = TypeVar("OutValueOrAny")
