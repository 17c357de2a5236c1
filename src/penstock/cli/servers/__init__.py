"""The commands that run a broker or a registry."""
