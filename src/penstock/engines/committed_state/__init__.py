"""The committed state of an application, for queries."""

__all__: list[str] = []
