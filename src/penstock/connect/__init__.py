"""Connectors that write to topics."""
