"""Operators of tables: sources, filters, maps, transforms, groupings."""

__all__: list[str] = []
