"""Grouped streams and tables, and their aggregations."""
