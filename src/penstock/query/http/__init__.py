"""Queries by HTTP: server, routes, client."""

__all__: list[str] = []
