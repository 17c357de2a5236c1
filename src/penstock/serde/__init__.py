"""Bytes to values and back, one at a time and by the column."""

from __future__ import annotations

from penstock.serde.base import Serde
from penstock.serde.changes import ChangeSerde
from penstock.serde.column import Column
from penstock.serde.serdes import Serdes
from penstock.serde.windowed import Window, Windowed, WindowedColumn

__all__ = ["ChangeSerde", "Column", "Serde", "Serdes", "Window", "Windowed", "WindowedColumn"]
