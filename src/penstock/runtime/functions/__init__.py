"""Calls of users' functions, by the row and by the column."""

__all__: list[str] = []
