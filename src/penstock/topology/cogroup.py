"""Grouped streams that fold into one table, as data.

Each stream has a processor of its own; all hand what they get to the one that merges them, which has the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.topology.functions import Function
from penstock.topology.operations import Operation
from penstock.topology.windows import WindowSpec

__all__ = ["CogroupMember", "CogroupMerge"]


@dataclass(frozen=True, slots=True)
class CogroupMember(Operation):  # KStreamAggregate, KStreamWindowAggregate, ... of one of the streams
    number: int
    windows: WindowSpec | None = None


@dataclass(frozen=True, slots=True)
class CogroupMerge(Operation):  # KTablePassThrough; ``aggregators`` by the number of the stream
    aggregators: tuple[Function, ...]
    initializer: Callable[[], Any]
    store: str
    windows: WindowSpec | None = None
    merger: Function | None = None
    send_old: bool = False
