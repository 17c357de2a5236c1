"""Bytes to values and back, one at a time and by the column."""
