"""A terminal that keeps what is typed while a statement runs for the next prompt, and does not show it before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

__all__ = ["unechoed"]


@contextmanager
def unechoed(stream: TextIO) -> Iterator[None]:
    """Switch off the echo of a terminal, whose place a spinner has; what is typed stays for the next reader.

    Args:
        stream: The input; nothing happens if it is not a terminal, or one without such a switch.
    """
    before = _switched_off(stream)
    try:
        yield
    finally:
        if before is not None:
            import termios

            with suppress(termios.error):
                termios.tcsetattr(stream.fileno(), termios.TCSANOW, before)


def _switched_off(stream: TextIO) -> list[Any] | None:
    """The attributes of the terminal before; None if nothing was switched."""
    try:
        import termios
    except ImportError:
        return None  # Windows
    try:
        before = termios.tcgetattr(stream.fileno())
    except (termios.error, OSError, ValueError):
        return None
    changed = [*before]
    changed[3] &= ~termios.ECHO
    termios.tcsetattr(stream.fileno(), termios.TCSANOW, changed)
    return before
