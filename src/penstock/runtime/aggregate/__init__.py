"""Aggregations: by key, in windows of every kind, in sessions, cogrouped."""

__all__: list[str] = []
