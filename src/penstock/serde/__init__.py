"""Bytes to values and back, one at a time and by the column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.serde.base import BaseSerde as BaseSerde
    from penstock.serde.base import Serde as Serde
    from penstock.serde.bound_serdes import RecordHeaders as RecordHeaders
    from penstock.serde.column import Column as Column
    from penstock.serde.serdes import Serdes as Serdes
    from penstock.serde.table_changes import ChangeSerde as ChangeSerde
    from penstock.serde.windowed import Window as Window
    from penstock.serde.windowed import Windowed as Windowed
    from penstock.serde.windowed import WindowedColumn as WindowedColumn

__all__ = [
    "BaseSerde",
    "ChangeSerde",
    "Column",
    "RecordHeaders",
    "Serde",
    "Serdes",
    "Window",
    "Windowed",
    "WindowedColumn",
]

# Loaded when first used: modules of this package are used without Polars too.
__getattr__ = lazy_names(
    __name__,
    {
        "BaseSerde": "base",
        "ChangeSerde": "table_changes",
        "Column": "column",
        "RecordHeaders": "bound_serdes",
        "Serde": "base",
        "Serdes": "serdes",
        "Window": "windowed",
        "Windowed": "windowed",
        "WindowedColumn": "windowed",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
