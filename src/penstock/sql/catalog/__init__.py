"""Streams, tables, types, variables and settings that statements have made: in memory."""

from __future__ import annotations

from penstock.sql.catalog.catalog import Catalog
from penstock.sql.catalog.source import DataFormat, Source, SourceColumn, SourceWindow, TimestampColumn

__all__ = ["Catalog", "DataFormat", "Source", "SourceColumn", "SourceWindow", "TimestampColumn"]
