"""Paths to fields: a name at the top (V1), or names between dots, those with dots in backticks (V2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.connect.config import AnyCase, Importance, Kind
from penstock.connect.data import Field, Schema, SettingError, Struct, UnexpectedDataError
from penstock.connect.transforms.transformation import require_map, require_struct, setting

__all__ = ["FIELD_SYNTAX", "FieldPath"]

PURPOSE = "nested field access"
FIELD_SYNTAX = setting(
    "field.syntax.version",
    Kind.STRING,
    "Defines the version of the syntax to access fields. If set to `V1`, then the field paths are limited to access "
    "the elements at the root level of the struct or map. If set to `V2`, the syntax will support accessing nested "
    "elements. To access nested elements, dotted notation is used. If dots are already included in the field name, "
    "then backtick pairs can be used to wrap field names containing dots. E.g. to access the subfield `baz` from a "
    'field named "foo.bar" in a struct/map the following format can be used to access its elements: "`foo.bar`.baz".',
    default="V1",
    rule=AnyCase(("V1", "V2")),
    importance=Importance.HIGH,
)


@dataclass(frozen=True, slots=True)
class FieldPath:
    """The path to one field.

    Attributes:
        text: The path as it was written.
        steps: The names on the way.

    Example:
        >>> FieldPath.of("`a.b`.c", "V2").steps
        ('a.b', 'c')
    """

    text: str
    steps: tuple[str, ...]

    @classmethod
    def of(cls, text: str | None, syntax: str) -> FieldPath:
        """The path that a text says.

        Raises:
            SettingError: A backtick lacks its pair.
        """
        if text is None:
            raise UnexpectedDataError("the path of a field is null")
        return cls(text, (text,) if syntax.upper() == "V1" else tuple(_steps(text)))

    def in_schema(self, schema: Schema) -> Field | None:
        """The field in a schema; None if there is none."""
        for step in self._way():
            field = schema.field(step)
            if field is None:
                return None
            schema = field.schema
        return schema.field(self.steps[-1])

    def in_struct(self, value: Struct, *, with_default: bool) -> Any:
        """The field's value; None if there is no such field."""
        for step in self._way():
            field = value.schema.field(step)
            inner = None if field is None else value.get(field)
            if inner is None:
                return None
            value = require_struct(inner, PURPOSE)
        field = value.schema.field(self.steps[-1])
        return None if field is None else value.get(field, with_default=with_default)

    def in_map(self, value: dict[Any, Any]) -> Any:
        """The value in a map; None if it has none."""
        for step in self._way():
            inner = value.get(step)
            if inner is None:
                return None
            value = require_map(inner, PURPOSE)
        return value.get(self.steps[-1])

    def _way(self) -> tuple[str, ...]:
        if not self.steps:
            raise UnexpectedDataError("the path of a field is empty")
        return self.steps[:-1]


def _steps(path: str) -> list[str]:
    steps: list[str] = []
    at = 0
    while 0 <= at < len(path):
        if path[at] == "`":
            name, at = _quoted(path, at)
            steps.append(name)
        else:
            dot = path.find(".", at)
            steps.append(path[at:dot] if dot >= 0 else path[at:])
            at = dot + 1 if dot >= 0 else len(path)
    return [*steps, ""] if path.endswith(".") else steps


def _quoted(path: str, opening: int) -> tuple[str, int]:
    """The name in backticks, and the position behind it and its dot. Backticks inside stand, before a dot escaped."""
    name: list[str] = []
    start = at = opening + 1
    while True:
        at = path.find("`", at)
        escaped = at > 0 and path[at - 1] == "\\"
        if at < 0 or (at == len(path) - 1 and escaped):
            raise SettingError(
                f"Incomplete backtick pair in path: [{path}], consider adding a backslash before backtick at "
                f"position {opening} to escape it"
            )
        if at == len(path) - 1:
            return "".join([*name, path[start:at]]), at + 1
        if path[at + 1] != ".":
            at += 1
        elif escaped:
            name.append(path[start : at - 1] + "`")
            at += 1
            start = at
        else:
            return "".join([*name, path[start:at]]), at + 2
