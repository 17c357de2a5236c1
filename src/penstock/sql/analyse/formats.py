"""Whether formats can hold columns, and how a single column is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.errors import SqlError
from penstock.sql.analyse.statement_errors import refusal
from penstock.sql.catalog import Catalog, DataFormat, SourceColumn
from penstock.sql.formats import check_columns, format_info
from penstock.sql.parse.tokens import TextPosition
from penstock.sql.types import MapType, SqlType
from penstock.sql.types.sql_type import inner_types, quoted

__all__ = ["check_formats", "check_key_types", "wrapping"]


def check_key_types(columns: Iterable[tuple[str, SqlType]], at: TextPosition) -> None:
    """Refuse keys that hold maps: equal maps may have different bytes."""
    for name, kind in columns:
        if _holds_map(kind):
            raise refusal(
                at,
                f"The key column {quoted(name)} of type {kind} holds a MAP. Map keys cannot be used: "
                "equal maps may have different bytes.",
            )


def check_formats(columns: Iterable[SourceColumn], key: DataFormat, value: DataFormat, at: TextPosition) -> None:
    """Refuse columns that the formats of key and value cannot hold."""
    held = tuple(columns)
    keys = tuple((column.name, column.type) for column in held if column.is_key)
    values = tuple((column.name, column.type) for column in held if column.role == "VALUE")
    check_key_types(keys, at)
    for form, part, among in ((key, "key", keys), (value, "value", values)):
        try:
            check_columns(form.name, among, part)
        except SqlError as error:
            shown = ", ".join(f"{quoted(name)} {kind}" for name, kind in among)
            reason = f"The {part.lower()} columns {shown} do not fit the {part.lower()} format {form.name}: "
            several = part == "key" and len(among) > 1
            hint = error.hint or ("Write KEY_FORMAT='JSON' into WITH: it holds several columns." if several else "")
            raise refusal(at, reason + error.message, hint) from None


def wrapping(wrap: bool | None, form: DataFormat, count: int, catalog: Catalog, at: TextPosition) -> DataFormat:  # noqa: FBT001
    """Return the format of a value with how its single column is written: WRAP_SINGLE_VALUE, or the setting.

    Raises:
        SqlError: The format cannot do that, or there are several columns.
    """
    info = format_info(form.name)
    if wrap is not None:
        if not (info.wraps if wrap else info.unwraps):
            raise refusal(
                at, f"'WRAP_SINGLE_VALUE' = '{str(wrap).lower()}' cannot be had from the format '{form.name}'."
            )
        if count != 1:
            raise refusal(at, "'WRAP_SINGLE_VALUE' needs a value schema of a single field")
        return replace(form, wrap=wrap)
    text = catalog.setting("ksql.persistence.wrap.single.values").lower()
    if count == 1 and text in ("true", "false") and (info.wraps if text == "true" else info.unwraps):
        return replace(form, wrap=text == "true")
    return replace(form, wrap=None)


def _holds_map(kind: SqlType) -> bool:
    return isinstance(kind, MapType) or any(map(_holds_map, inner_types(kind)))
