"""Nexmark: events of an auction house, 23 queries over them, and their answers."""
