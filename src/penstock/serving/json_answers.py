"""JSON answers whose texts may hold any characters."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from penstock.base.escapes import json_text

__all__ = ["EscapedJson"]


class EscapedJson(JSONResponse):
    """JSON with escapes for characters that a terminal acts upon, and for halves of surrogate pairs."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return json_text(content, allow_nan=False, separators=(",", ":")).encode()
