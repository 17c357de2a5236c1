"""The console that everything is drawn on: texts stay texts, whatever they hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from penstock.base.escapes import visible

__all__ = ["Screen"]


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
