"""Restores: replicas that are brought up to the newest batch, and what others see of it meanwhile."""

__all__: list[str] = []
