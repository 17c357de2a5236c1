"""The embedded log: topics in SQLite, as Arrow record batches."""

__all__: list[str] = []
