"""The view of the running demo: a live table on a terminal, else a line every few seconds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from penstock.base.terminal.human_numbers import size
from penstock.base.terminal.live import LiveView

__all__ = ["Figures", "DemoView"]

_WINDOWS_SHOWN = 8
_PLAIN_EVERY_S = 5.0


@dataclass
class Figures:
    """The figures at one moment."""

    seconds: float = 0.0
    phase: str = "starting Spark"
    lines: int = 0
    counted: int = 0
    rate: float = 0.0
    bad: int = 0
    dropped: int = 0
    state_bytes: int = 0
    state_rows: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[tuple[int, str], int] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)


class DemoView(LiveView[Figures]):
    """The view of the demo's figures; use it in a ``with`` block. The last figures stay on the screen."""

    transient = False

    def __init__(self, console: Console) -> None:
        super().__init__(console, _screen, _line, every_s=_PLAIN_EVERY_S)


def _line(figures: Figures) -> str:
    windows = len({start for start, _ in figures.counts})
    lag = " ".join(f"{partition}={behind}" for partition, behind in sorted(figures.lag.items())) or "none"
    if figures.phase == Figures.phase:
        return f"{figures.seconds:4.0f}s  {figures.phase}: {figures.lines:,} lines wait"
    return (
        f"{figures.seconds:4.0f}s  {figures.phase}: {figures.lines:,} lines read, {figures.counted:,} counted in "
        f"{windows} windows, {figures.rate:,.0f} records/s, lag {lag}, state {size(figures.state_bytes)}"
    )


def _screen(figures: Figures) -> Group:
    head = Text.assemble(
        ("access_log -> os-check  ", "bold"),
        f"{figures.phase}, {figures.seconds:.0f} s",
    )
    totals = Text.assemble(
        (f"{figures.rate:,.0f} records/s  ", "bold green"),
        f"{figures.lines:,} lines  {figures.counted:,} counted  {figures.bad:,} bad",
    )
    lag = "  ".join(f"{location} {behind:,}" for location, behind in sorted(figures.lag.items())) or "none"
    rows = f" in {figures.state_rows:,} rows" if figures.state_rows else ""
    facts = Table.grid(padding=(0, 2))
    facts.add_row("lag", lag)
    facts.add_row("state", f"{size(figures.state_bytes)}{rows}; {figures.dropped:,} records dropped (bad or late)")
    for name, location in figures.places.items():
        facts.add_row(name, location)
    return Group(head, totals, Text(), _table(figures.counts), Text(), facts)


def _table(counts: Mapping[tuple[int, str], int]) -> Table:
    systems = sorted({system for _, system in counts})
    starts = sorted({start for start, _ in counts})[-_WINDOWS_SHOWN:]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("window (UTC)", no_wrap=True)
    for name in (*systems, "all"):
        table.add_column(name, justify="right")
    for start in starts:
        when = dt.datetime.fromtimestamp(start / 1000, dt.UTC)
        row = [counts.get((start, system), 0) for system in systems]
        table.add_row(f"{when:%d %b %H:%M}", *(f"{count:,}" for count in row), f"{sum(row):,}")
    return table
