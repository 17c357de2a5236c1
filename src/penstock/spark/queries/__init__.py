"""Interactive queries over committed state."""

__all__: list[str] = []
