"""Holding a table's changes back, as data."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.topology.operations import Operation

__all__ = ["Suppress"]


@dataclass(frozen=True, slots=True)
class Suppress(Operation):  # KTableSuppressProcessor; ``parent`` is the table node whose values it shows late
    parent: str
    store: str
    wait_ms: int  # from the buffer time of a key: its window's end, or the time of the first change held back for it
    until_window_closes: bool
    max_records: int | None = None
    max_bytes: int | None = None
    emit_early: bool = False
