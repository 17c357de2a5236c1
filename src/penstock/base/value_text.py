"""Values in the texts of errors."""

from __future__ import annotations

import reprlib

__all__ = ["show"]


def show(value: object, most: int = 80) -> str:
    """Return a value for an error's text, cut to so many characters."""
    for represent in (repr, reprlib.repr):
        try:
            text = represent(value)
        except Exception:  # noqa: BLE001, S112 - nested too deep, a number too long, or a user's own __repr__ fails
            continue
        return text if len(text) <= most else f"{text[: most - 3]}..."
    return f"<{type(value).__name__}>"
