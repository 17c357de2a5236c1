"""Penstock's notes beside Spark's checkpoint, and their checks at a start."""

__all__: list[str] = []
