"""The sink to object stores and folders: Parquet, JSON lines and CSV, each record once by the names of objects."""

from penstock.connect.connectors.objects.sink import ObjectSinkConnector, ObjectSinkTask

__all__ = ["ObjectSinkConnector", "ObjectSinkTask"]
