"""Connectors that feed topics."""
