"""What a source's task may ask of its delivery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.connect.api import OffsetReader, TransactionContext

__all__ = ["SourceContext"]


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The `SourceTaskContext` of a task, whose attributes it has."""

    settings: Mapping[str, str]
    offset_reader: OffsetReader
    transaction_context: TransactionContext | None = None
    copies: bool = False
