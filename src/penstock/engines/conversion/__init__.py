"""Conversion of an application between micro-batches and continuous mode, with its state and positions."""

__all__: list[str] = []
