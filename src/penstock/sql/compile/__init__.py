"""Plans to topologies: each step of a plan becomes verbs of a `StreamsBuilder`.

Rows travel as tuples, one Python value for each column of their step; keys are tuples too, within a `Windowed` where
the source has windows. Rows are made when a source is read, with key, time, partition, offset and headers in them, so
all that a query can name is in the row, and is stored with it.
"""

from __future__ import annotations

from penstock.sql.compile.queries import compile_query, compile_results, table_stores
from penstock.sql.compile.serdes import source_serdes

__all__ = ["compile_query", "compile_results", "source_serdes", "table_stores"]
