"""The console that everything is drawn on, and a live view, which prints a line from time to time elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from rich.console import Console
from rich.live import Live
from rich.segment import Segment

from penstock.base.escapes import visible

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import RenderableType

__all__ = ["LiveView", "Screen"]


class Screen(Console):
    """Rich's console, for texts that others have written.

    Square brackets are not markup and colons are not emoji, unless a call asks for it; control characters, marks of
    direction and halves of characters are drawn as escapes, while rich's own control sequences pass.

    Args:
        options: Those of rich's ``Console``.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            segment if segment.control else Segment(visible(segment.text), segment.style) for segment in buffer
        )


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
