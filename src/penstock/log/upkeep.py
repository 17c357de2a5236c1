"""Upkeep of an embedded log: retention, compaction, deletion of records, sizes."""

from __future__ import annotations

from penstock.log.database import Database

__all__ = ["Upkeep"]


class Upkeep:
    """Retention, compaction and sizes of an embedded log."""

    _database: Database

    def clean_sometimes(self, now_ms: int) -> None:
        """Cleans if nobody has for a while."""
