"""Tables of lakehouses: each record is a row once, and each row a record once."""

from penstock.connect.connectors.lakehouse.delta import DeltaSinkConnector, DeltaSinkTask
from penstock.connect.connectors.lakehouse.delta_source import DeltaSourceConnector, DeltaSourceTask
from penstock.connect.connectors.lakehouse.iceberg import IcebergSinkConnector, IcebergSinkTask
from penstock.connect.connectors.lakehouse.iceberg_source import IcebergSourceConnector, IcebergSourceTask

__all__ = [
    "DeltaSinkConnector",
    "DeltaSinkTask",
    "DeltaSourceConnector",
    "DeltaSourceTask",
    "IcebergSinkConnector",
    "IcebergSinkTask",
    "IcebergSourceConnector",
    "IcebergSourceTask",
]
