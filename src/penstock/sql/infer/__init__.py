"""CREATE statements from a sample of a topic: formats are recognised, the types of all records merged, keys found."""

from __future__ import annotations

from penstock.sql.infer.sample import Sample, read_sample
from penstock.sql.infer.statement import Inferred, infer_statement

__all__ = ["Inferred", "Sample", "infer_statement", "read_sample"]
