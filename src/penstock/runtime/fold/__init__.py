"""Folding the records of a batch into aggregates, by rows or by columns."""

__all__: list[str] = []
