"""The operators of joins."""

__all__: list[str] = []
