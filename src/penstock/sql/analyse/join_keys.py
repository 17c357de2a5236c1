"""Keys that joins make: columns of their own, where none of the joined columns has the key's value in every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.sql.analyse.fields import RowField
from penstock.sql.parse import expression_nodes as x
from penstock.sql.types import SqlType

__all__ = ["with_own_key"]

NAME = "ROWKEY"


def with_own_key(
    fields: Sequence[RowField], kinds: Sequence[SqlType]
) -> tuple[tuple[RowField, ...], tuple[tuple[x.Expression, ...], ...]]:
    """Add the columns of a join's own key, and return the expressions that name each of them.

    One column is called ROWKEY, several are ROWKEY_1, ROWKEY_2 and so on; names that the sources have are left out.

    Args:
        fields: The columns of the joined rows.
        kinds: The types of the key's columns.
    """
    fields = [_hidden(field) for field in fields]
    taken = {field.name for field in fields}
    added: list[RowField] = []
    number = 1 if len(kinds) > 1 else 0
    for kind in kinds:
        while (name := f"{NAME}_{number}" if number else NAME) in taken:
            number += 1
        number += 1
        added.append(RowField(name, kind, None, "COMPUTED"))
    return (*fields, *added), tuple((x.ColumnNode(field.name),) for field in added)


def _hidden(field: RowField) -> RowField:
    """Return the key that an earlier join made is not a column behind a later one that makes its own."""
    return replace(field, name=f"{field.name} of a join before") if field.role == "COMPUTED" else field
