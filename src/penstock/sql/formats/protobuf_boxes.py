"""Arrays and maps within arrays and maps, which Protobuf has only in a message of one field: a box."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.serde.formats.protobuf import BOX_FIELD
from penstock.sql.types import ArrayType, MapType, SqlType, StructType

__all__ = ["boxing", "unboxing"]

Step = Callable[[Any], Any]


def boxing(kind: SqlType) -> Step | None:
    """The function that puts inner arrays and maps of values into boxes; None where the type has none.

    >>> from penstock.sql.types import INTEGER
    >>> boxing(ArrayType(ArrayType(INTEGER)))([[1], None])
    [{'value': [1]}, {}]
    """
    return _step(kind, _boxed)


def unboxing(kind: SqlType) -> Step | None:
    """The function that takes inner arrays and maps out of their boxes; None where the type has none."""
    return _step(kind, _unboxed)


def _step(kind: SqlType, change: Callable[[Step | None], Step]) -> Step | None:
    match kind:
        case ArrayType(element):
            each = _inner(element, change)
            return None if each is None else lambda values: _null(values, lambda: [each(value) for value in values])
        case MapType(_, inner):
            item = _inner(inner, change)
            return None if item is None else lambda held: _null(held, lambda: {k: item(v) for k, v in held.items()})
        case StructType(fields):
            field_steps = [(field.name.upper(), _step(field.type, change)) for field in fields]
            steps = {name: step for name, step in field_steps if step is not None}
            return (lambda row: _null(row, lambda: _fields(row, steps))) if steps else None
    return None


def _inner(kind: SqlType, change: Callable[[Step | None], Step]) -> Step | None:
    """The step of an element or of a map's value: in a box, if it is an array or map itself."""
    step = _step(kind, change)
    return change(step) if isinstance(kind, ArrayType | MapType) else step


def _boxed(step: Step | None) -> Step:
    return lambda value: {} if value is None else {BOX_FIELD: value if step is None else step(value)}


def _unboxed(step: Step | None) -> Step:
    def unbox(message: Any) -> Any:
        value = next(iter(message.values()), None) if isinstance(message, dict) and len(message) == 1 else message
        return value if step is None else step(value)

    return unbox


def _fields(row: dict[str, Any], steps: dict[str, Step]) -> dict[str, Any]:
    return {name: value if (step := steps.get(name.upper())) is None else step(value) for name, value in row.items()}


def _null(value: Any, change: Callable[[], Any]) -> Any:
    return None if value is None else change()
