"""Offsets of Spark's source: start positions, and the limits of a batch."""

__all__: list[str] = []
