"""A live view on a terminal, lines elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from penstock.base.terminal.live import LiveView
from penstock.cli.output import progress_bar


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def _console(*, is_terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=is_terminal, width=120, color_system=None), out


def test_without_a_terminal_there_is_a_line_every_ten_seconds() -> None:
    console, out = _console(is_terminal=False)
    clock = Clock()
    with LiveView[int](console, str, lambda number: f"[{number}]", every_s=10, now=clock) as view:
        for second in range(35):
            clock.at = float(second)
            view.show(second)
        view.note("[done]")
    assert out.getvalue().split() == ["[10]", "[20]", "[30]", "[done]"]


def test_on_a_terminal_it_is_drawn_at_once() -> None:
    console, out = _console(is_terminal=True)
    with LiveView[int](console, lambda number: f"drawn {number}", str, every_s=10) as view:
        view.show(1)
        view.note("a note")
    assert "drawn 1" in out.getvalue()
    assert "a note" in out.getvalue()


def test_a_bar_is_for_terminals() -> None:
    for is_terminal in (True, False):
        console, out = _console(is_terminal=is_terminal)
        with progress_bar(console, "generating [x]", 4) as bar:
            bar.at(3)
            bar.advance()
        assert ("generating [x]" in out.getvalue()) == is_terminal
        assert ("4/4" in out.getvalue()) == is_terminal
    console, out = _console(is_terminal=True)
    with progress_bar(console, "hidden", hidden=True) as bar:
        bar.advance()
    assert out.getvalue() == ""
