"""Tables of lakehouses: each record is a row once, as offsets are in the commits of the tables."""

from penstock.connect.connectors.lakehouse.delta import DeltaSinkConnector, DeltaSinkTask
from penstock.connect.connectors.lakehouse.iceberg import IcebergSinkConnector, IcebergSinkTask

__all__ = ["DeltaSinkConnector", "DeltaSinkTask", "IcebergSinkConnector", "IcebergSinkTask"]
