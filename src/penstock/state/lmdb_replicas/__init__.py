"""Replicas: copies of stores in LMDB, which a machine can lose at any time."""

__all__: list[str] = []
