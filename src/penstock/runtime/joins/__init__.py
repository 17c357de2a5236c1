"""Joins of streams and tables."""

__all__: list[str] = []
