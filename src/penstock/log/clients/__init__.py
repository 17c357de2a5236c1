"""Consumers and producers of the public API, for either log."""

__all__: list[str] = []
