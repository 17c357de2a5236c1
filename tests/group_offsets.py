"""Offsets of an application's group, set while a test holds its lease."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.log.base import TopicPartition

__all__ = ["set_offsets"]


def set_offsets(log: Any, offsets: Mapping[TopicPartition, int], metadata: str = "", application: str = "app") -> None:
    """Set offsets in the name of the application, which the log refuses to others while a lease is held."""
    log.commit_offsets(application, offsets, metadata, log.lease(application))
