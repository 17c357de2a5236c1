"""Suppress: changes of tables that wait for a time limit or the close of a window."""

__all__: list[str] = []
