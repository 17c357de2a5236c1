"""Streaming DataFrames as sources of topics, and topics as streaming DataFrames."""

__all__: list[str] = []
