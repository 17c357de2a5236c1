"""The size of a task's stores on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.state.maps import ReadableMap

__all__ = ["stored_bytes"]


class _Layered(Protocol):
    @property
    def base(self) -> ReadableMap: ...


def stored_bytes(stores: Mapping[str, _Layered]) -> dict[str, int]:
    """Return the bytes that the committed rows of each store take on disk; stores in memory are left out."""
    from penstock.state.lmdb_replicas.lmdb_replica import LmdbMap  # brings LMDB, which stores in memory do without

    return {name: overlay.base.size_bytes for name, overlay in stores.items() if isinstance(overlay.base, LmdbMap)}
