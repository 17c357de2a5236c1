"""What requests that change something must have, in one place for all servers of a console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.serving import READING

if TYPE_CHECKING:
    from penstock.console.web.site import Permissions

__all__ = ["BODY_BYTES", "MARK", "methods_of"]

MARK = "X-Penstock"
BODY_BYTES = 64 * 1024


def methods_of(permissions: Permissions) -> frozenset[str]:
    """Return the methods that a console serves: those that read, and POST if its visitors may write."""
    return READING | {"POST"} if permissions.writes else READING
