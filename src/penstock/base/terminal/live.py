"""A live view that is redrawn on a terminal, and prints a line from time to time elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Generic, Self, TypeVar

from rich.live import Live

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console, RenderableType

__all__ = ["LiveView"]

F = TypeVar("F")


class LiveView(Generic[F]):
    """A live view of figures; use it in a ``with`` block.

    Args:
        console: The console to draw on.
        screen: Returns what a terminal shows of figures.
        line: Returns the line that is printed where there is no terminal.
        every_s: The least time between two such lines, in seconds.
        now: Returns the time in seconds.

    Attributes:
        transient: Whether the live part is erased at the end; for subclasses to set.
    """

    transient: ClassVar[bool] = True

    def __init__(
        self,
        console: Console,
        screen: Callable[[F], RenderableType],
        line: Callable[[F], str],
        *,
        every_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console, self._screen, self._line = console, screen, line
        self._every_s, self._now = every_s, now
        self._live = (
            Live(console=console, refresh_per_second=4, transient=self.transient) if console.is_terminal else None
        )
        self._said_at = now()

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def note(self, text: str) -> None:
        """Print a text above the live part."""
        self._console.print(text, markup=False)

    def show(self, figures: F) -> None:
        """Show the present figures; without a terminal print a line, if the last one is old enough."""
        if self._live:
            self._live.update(self._screen(figures))
        elif self._now() - self._said_at >= self._every_s:
            self._said_at = self._now()
            self._console.print(self._line(figures), markup=False)
