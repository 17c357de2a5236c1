"""The size of a task's stores on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.state.lmdb_replica import ReplicaMap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.state.overlay import OverlayMap

__all__ = ["stored_bytes"]


def stored_bytes(stores: Mapping[str, OverlayMap]) -> dict[str, int]:
    """Return the bytes that the committed rows of each store take on disk; stores in memory are left out."""
    return {name: overlay.base.size_bytes for name, overlay in stores.items() if isinstance(overlay.base, ReplicaMap)}
