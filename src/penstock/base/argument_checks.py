"""Checks of arguments, with an error that names the expected and the given value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import PenstockError, TopologyError

__all__ = ["check_given", "check_mapping", "check_optional", "check_whole"]


def check_given(
    value: object,
    kinds: type | tuple[type, ...],
    what: str,
    required: str,
    hint: str = "",
    error: type[PenstockError] = TopologyError,
) -> None:
    """Raise an error unless the value has one of these types.

    Args:
        value: The argument.
        kinds: The accepted types.
        what: The name of the argument, with its call: ``"to(): produced"``.
        required: The expected kind of value, with its article: ``"a Produced"``.
        hint: A correct example.
        error: The class of the error.
    """
    if not isinstance(value, kinds):
        raise error(f"{what} must be {required}, not {type(value).__name__} {value!r}", hint=hint)


def check_optional(value: object, kinds: type | tuple[type, ...], what: str, required: str, hint: str = "") -> None:
    """Like `check_given`, but accept None."""
    if value is not None:
        check_given(value, kinds, what, required, hint)


def check_whole(value: object, what: str, least: int, error: type[PenstockError] = TopologyError) -> None:
    """Raise an error unless the value is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise error(
            f"{what} must be a whole number, not {type(value).__name__} {value!r}", hint=f"Give {least} or more."
        )
    if value < least:
        raise error(f"{what} is {value}", hint=f"Give {least} or more.")


def check_mapping(value: object, what: str, error: type[PenstockError] = TopologyError) -> Mapping[str, Any]:
    """Return the value if it is a mapping of settings; raise an error otherwise."""
    check_given(value, Mapping, what, "a mapping of names and values", 'For example {"segment.ms": "600000"}.', error)
    return value  # type: ignore[return-value]
