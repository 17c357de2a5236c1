"""The first import of the process that tasks are forked from, before any that makes Arrow's arrays."""

from __future__ import annotations

from penstock.connect.process_memory import take_little_memory

__all__: list[str] = []

take_little_memory()
